"""Claim: a cluster that jobs share in rounds behaves as in Gavel's own simulator, under the policies that both have.

    python -m benchmarks.shared_cluster [--quick] [--json]

Reference: jobs/reference_results.csv of the shared data, measured with Gavel (OSDI 2020; commit c4fa400, ECOS), on its
traces, at constant prices of 2020, without checkpoints, deadlines or space sharing. Targets are what swapping the
solver changes there: 2 % of cost and of makespan, and 4 % of the mean completion time; of the makespan policies only
the makespan. Rounds, priorities and random orders are those of orchestrator.arena.rounds. Where types are filled in
random order, ours is the mean over 20 orders, beside the one that Gavel drew. Everything is simulated.

Not compared: AlloX, Gandiva and isolated jobs, which are no policies of this product; deadlines (benchmarks.rented) and
space sharing (benchmarks.colocation), where Gavel drops deadlines and bills pairs twice; `fifo`, whose random choice of
a type is final; finish-time fairness without speeds, where the slowest job alone decides and all other shares are the
solver's; changing prices. Nor is one trace under `fifo_perf`, where two faults of Gavel tell (FAULTY).
--quick: the two traces of Gavel's physical cluster.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np
from rich.progress import track

from benchmarks._claims import Claim, show
from orchestrator.arena.cluster_policies import POLICIES
from orchestrator.arena.job_traces import read_jobs
from orchestrator.arena.rounds import Arrivals, Outcome
from orchestrator.policy.groups import Supply

JOBS = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared") / "jobs"
TYPES, USD_PER_H = ("v100", "p100", "k80"), np.array([0.74, 0.43, 0.135])
QUICK = ("static100", "cont96")
ORDERS = 20
"""Random orders of the types: makespans under one or another differ by 2 % of their mean (standard deviation)."""
NAMES = {
    "fifo_perf": "queue",
    "finish_time_fairness_perf": "finish-time-fairness",
    "max_min_fairness": "max-min-fairness-agnostic",
    "max_min_fairness_perf": "max-min-fairness",
    "max_min_fairness_water_filling_perf": "water-filling",
    "max_sum_throughput_normalized_by_cost_perf": "throughput-per-dollar",
    "max_sum_throughput_perf": "max-throughput",
    "min_total_duration": "makespan-agnostic",
    "min_total_duration_perf": "makespan",
}
"""Ours by Gavel's names."""
FAULTY = ("cont96", "fifo_perf")
"""Two faults of Gavel change this result: it gives a waiting job GPUs of a type on which the job cannot run, so that
others overtake it, and it recomputes shares too early, because it reads a last time of 0 as "never". With both faults
rebuilt, the results agree (tests/unit/arena/test_rounds.py)."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    if not JOBS.exists():
        print(f"skipped: {JOBS} is not here (TRADEWIND_SHARED names the folder above)", file=sys.stderr)
        return show("A shared cluster", [], as_json=options.json)
    rows = list(references(QUICK if options.quick else None))
    claims: list[Claim] = []
    for row in track(rows, "simulating", disable=options.json or not sys.stdout.isatty()):
        claims += compared(row)
    return show("A shared cluster, in percent of Gavel's figures", claims, as_json=options.json)


def references(traces: Sequence[str] | None) -> Iterator[dict[str, str]]:
    """The rows of the reference that can be compared, of these traces or of all."""
    with (JOBS / "reference_results.csv").open() as file:
        for row in csv.DictReader(file):
            same = (row["solver"], row["prices"]) == ("ECOS", "gcp_static") and row["policy"] in NAMES
            right = (row["trace"], row["policy"]) != FAULTY
            if same and right and (traces is None or row["trace"] in traces):
                yield row


def compared(row: dict[str, str]) -> list[Claim]:
    """How far each figure is from the reference."""
    jobs = read_jobs(JOBS / f"traces/{row['trace']}.csv", JOBS / "throughputs_isolated.csv", TYPES).jobs
    found = simulated(jobs, row["cluster"], row["policy"])
    name = f"{row['trace']} on {row['cluster']}, {row['policy']}"
    makespans = [float(each.ended_s.max()) / 3600 for each in found]
    figures = [("makespan", makespans, float(row["makespan_h"]), 2.0)]
    if not row["policy"].startswith("min_total_duration"):
        means = [float((each.ended_s - jobs.at_s).mean()) / 3600 for each in found]
        figures += [("cost", [each.usd for each in found], float(row["cost_usd"]), 2.0)]
        figures += [("mean", means, float(row["avg_jct_h"]), 4.0)]
    return [
        Claim(f"{name}: {what}", 100 * abs(float(np.mean(ours)) / theirs - 1), "%", most)
        for what, ours, theirs, most in figures
    ]


def simulated(jobs: Arrivals, cluster: str, policy: str) -> list[Outcome]:
    """In each random order of the types, if the policy has them; `cluster`: how many GPUs there are, by type."""
    unweighted, ours = replace(jobs, weight=None), POLICIES[NAMES[policy]]
    supply = Supply(np.array([float(count) for count in cluster.split(":")]), USD_PER_H)
    return [ours.cluster(unweighted, supply, order=each).run() for each in range(ORDERS if ours.agnostic else 1)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
