"""Claim: a cluster that jobs share in rounds behaves as in Gavel's own simulator.

    python -m benchmarks.shared_cluster [--json]     8 minutes; --quick: the traces of Gavel's physical cluster

Reference: jobs/reference_results.csv of the shared data, measured with Gavel (OSDI 2020; commit c4fa400, ECOS), on its
traces, without checkpoints. Targets are the differences that another solver causes there: 2 % of cost and of makespan,
and 4 % of the mean completion time; for the makespan policies only the makespan. Everything is simulated, twice:

- with this product's simulator (orchestrator.arena.rounds), under the policies that both have, at constant prices. If
  types are filled in random order, the product's result is the mean over 20 orders, compared with the one that Gavel
  drew. One trace under `fifo_perf`, where two faults of Gavel have an effect (FAULTY), is left out;
- with Gavel's faults (benchmarks/_as_gavel.py), which no policy of the product has: every policy, also with prices that
  change, with deadlines, and with space sharing, where both jobs of a pair pay for the whole GPU.

Not compared: rows of other solvers, from which the targets come.
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

from benchmarks._as_gavel import AsGavel, Prices
from benchmarks._claims import Claim, show
from benchmarks._pairs_as_gavel import SHARING, PairsAsGavel, beside
from benchmarks._policies_of_gavel import OURS
from orchestrator.arena.cluster_policies import POLICIES
from orchestrator.arena.job_traces import JobTrace, read_jobs
from orchestrator.arena.rounds import Outcome
from orchestrator.policy.groups import Supply
from orchestrator.policy.groups.problem import Floats

JOBS = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared") / "jobs"
TYPES, USD_PER_H = ("v100", "p100", "k80"), np.array([0.74, 0.43, 0.135])
QUICK, CONSTANT = ("static100", "cont96"), "gcp_static"
ORDERS = 20
"""Random orders of the types: their makespans have a standard deviation of 2 % of the mean."""
NAME_OF = {"fifo_perf": "queue", **OURS}
"""The product's policies by Gavel's names."""
FAULTY = ("cont96", "fifo_perf")
"""Two faults of Gavel change this result: it gives a waiting job GPUs of a type on which the job cannot run, so others
overtake it, and it recomputes shares too early, because it reads a last time of 0 as "never"."""


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
        if row["policy"] in NAME_OF and row["prices"] == CONSTANT and (row["trace"], row["policy"]) != FAULTY:
            claims += compared(row, simulated(row))
        claims += compared(row, [as_gavel(row)], how=", as Gavel")
    return show("A shared cluster, in percent of Gavel's figures", claims, as_json=options.json)


def references(traces: Sequence[str] | None) -> Iterator[dict[str, str]]:
    """The comparable rows of the reference, for these traces or for all."""
    with (JOBS / "reference_results.csv").open() as file:
        for row in csv.DictReader(file):
            if row["solver"] == "ECOS" and (traces is None or row["trace"] in traces):
                yield row


def compared(row: dict[str, str], found: Sequence[Outcome], *, how: str = "") -> list[Claim]:
    """The distance of each figure from the reference."""
    at_s = trace(row).jobs.at_s
    name = f"{row['trace']} on {row['cluster']}, {row['prices']}, {row['policy']}{how}"
    makespans = [float(each.ended_s.max()) / 3600 for each in found]
    figures = [("makespan", makespans, float(row["makespan_h"]), 2.0)]
    if not row["policy"].startswith("min_total_duration"):
        means = [float((each.ended_s - at_s).mean()) / 3600 for each in found]
        figures += [("cost", [each.usd for each in found], float(row["cost_usd"]), 2.0)]
        figures += [("mean", means, float(row["avg_jct_h"]), 4.0)]
    return [
        Claim(f"{name}: {what}", 100 * abs(float(np.mean(ours)) / theirs - 1), "%", most)
        for what, ours, theirs, most in figures
    ]


def simulated(row: dict[str, str]) -> list[Outcome]:
    """Results of the product's simulator, in each random order of the types if the policy uses random orders."""
    unweighted, ours = replace(trace(row).jobs, weight=None), POLICIES[NAME_OF[row["policy"]]]
    supply = Supply(_cluster(row), USD_PER_H)
    return [ours.cluster(unweighted, supply, order=each).run() for each in range(ORDERS if ours.agnostic else 1)]


def as_gavel(row: dict[str, str]) -> Outcome:
    """Results with Gavel's faults."""
    prices = Prices.read(JOBS / f"prices_{row['prices']}.csv", TYPES)
    if row["policy"] in SHARING:
        rates = beside(JOBS / f"traces/{row['trace']}.csv", JOBS / "throughputs_colocated.csv", TYPES)
        return PairsAsGavel(trace(row), _cluster(row), row["policy"], prices, rates).run()
    return AsGavel(trace(row), _cluster(row), row["policy"], prices).run()


def trace(row: dict[str, str]) -> JobTrace:
    """The jobs of a row."""
    return read_jobs(JOBS / f"traces/{row['trace']}.csv", JOBS / "throughputs_isolated.csv", TYPES)


def _cluster(row: dict[str, str]) -> Floats:
    """The number of GPUs of each type."""
    return np.array([float(count) for count in row["cluster"].split(":")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
