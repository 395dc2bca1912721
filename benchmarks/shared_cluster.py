"""Claim: a cluster that jobs share in rounds behaves as in Gavel's own simulator, under the policies that both have.

    python -m benchmarks.shared_cluster [--quick] [--json]

Reference: jobs/reference_results.csv of the shared data, measured with Gavel (OSDI 2020; commit c4fa400, ECOS), on its
traces, at constant prices of 2020, without checkpoints, deadlines or space sharing. Targets are what swapping the
solver changes there: 2 % of cost and of makespan, and 4 % of the mean completion time; of the makespan policies only
the makespan. Rounds, priorities and random orders are those of orchestrator.arena.rounds. Everything is simulated.

Not compared: AlloX, Gandiva and isolated jobs, which are no policies of this product; deadlines (benchmarks.rented) and
space sharing (benchmarks.colocation), where Gavel drops deadlines and bills pairs twice; first in, first out, which is
a linear program here and a queue there; and of the policies that do not know speeds, those about times, which Gavel
computes as if each job made one step a second. --quick: the two traces of Gavel's physical cluster.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np
from rich.progress import track

from benchmarks._claims import Claim, show
from orchestrator.arena.job_traces import read_jobs
from orchestrator.arena.rounds import Arrivals, Cluster, Outcome
from orchestrator.policy.groups import Collection, Program, Supply, solve
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.throughput import throughput_per_dollar, total_throughput
from orchestrator.policy.groups.policies.water_filling import water_filling
from orchestrator.policy.groups.problem import Floats

JOBS = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared") / "jobs"
TYPES, USD_PER_H = ("v100", "p100", "k80"), np.array([0.74, 0.43, 0.135])
QUICK = ("static100", "cont96")
Policy = Callable[[Collection], Floats]


def solved(program: Callable[[Collection], Program], *, agnostic: bool = False) -> Policy:
    return lambda jobs: solve(program(jobs.agnostic() if agnostic else jobs), central=True).shares


POLICIES: dict[str, Policy] = {
    "max_min_fairness": solved(max_min_fairness, agnostic=True),
    "max_min_fairness_perf": solved(max_min_fairness),
    "max_min_fairness_water_filling_perf": lambda jobs: water_filling(jobs).shares,
    "finish_time_fairness_perf": solved(finish_time_fairness),
    "max_sum_throughput_normalized_by_cost_perf": solved(throughput_per_dollar),
    "max_sum_throughput_perf": solved(total_throughput),
    "min_total_duration_perf": solved(makespan),
}
"""By Gavel's names, in which those without `perf` do not know how fast a job is on each type."""


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
            same = (row["solver"], row["prices"]) == ("ECOS", "gcp_static") and row["policy"] in POLICIES
            if same and (traces is None or row["trace"] in traces):
                yield row


def compared(row: dict[str, str]) -> list[Claim]:
    """How far each figure is from the reference."""
    jobs = read_jobs(JOBS / f"traces/{row['trace']}.csv", JOBS / "throughputs_isolated.csv", TYPES).jobs
    found = simulated(jobs, row["cluster"], row["policy"])
    name = f"{row['trace']} on {row['cluster']}, {row['policy']}"
    figures = [("makespan", float(found.ended_s.max()) / 3600, float(row["makespan_h"]), 2.0)]
    if not row["policy"].startswith("min_total_duration"):
        mean_h = float((found.ended_s - jobs.at_s).mean()) / 3600
        figures += [("cost", found.usd, float(row["cost_usd"]), 2.0), ("mean", mean_h, float(row["avg_jct_h"]), 4.0)]
    return [Claim(f"{name}: {what}", 100 * abs(ours / theirs - 1), "%", most) for what, ours, theirs, most in figures]


def simulated(jobs: Arrivals, cluster: str, policy: str) -> Outcome:
    """`cluster`: how many GPUs there are, by type."""
    unweighted = replace(jobs, weight=None)
    supply = Supply(np.array([float(count) for count in cluster.split(":")]), USD_PER_H)
    return Cluster(unweighted, supply, POLICIES[policy], shuffled=not policy.endswith("_perf")).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
