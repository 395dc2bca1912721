"""Claim: jobs with deadlines that rent machines as needed cost a third less than on a shared cluster, and all are on
time.

    python -m benchmarks.rented [--quick] [--json]

120 jobs with deadlines of 1.2, 2 and 10 times their fastest duration (shared/jobs, from Gavel's generator), simulated
on an elastic market with the constant prices of 2020 (orchestrator.arena.elastic): without overheads, and with leases
of whole rounds of 360 s and starts of 255 s. For comparison: the exact optimum without overheads, and the cost and
missed deadlines of Gavel's own simulator with its cost policy with deadlines on 9 GPUs of each type. Everything is
simulated.

Then 5,000 jobs share a cluster of 36 GPUs of each of three types under max-min fairness, as in Gavel's simulator
(orchestrator.arena.rounds): the CPU time of the simulation. --quick: 1,000 jobs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.arena.elastic import ElasticMarket
from orchestrator.arena.rounds import Arrivals, Cluster
from orchestrator.policy.groups import Collection, Supply, solve
from orchestrator.policy.groups.policies.fairness import max_min_fairness

JOBS = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared") / "jobs"
WAYS, USD_PER_H = ("v100", "p100", "k80"), np.array([0.74, 0.43, 0.135])
ROUND_S, RESTART_S = 360.0, 255.0
HARDLY_S = 1e-3
TRACE = "slo120_s0"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 jobs on the cluster")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    if not JOBS.exists():
        sys.exit(f"there is no shared data in {JOBS}: set TRADEWIND_SHARED")
    claims = rented() + shared_cluster(1000 if options.quick else 5000)
    return show("Jobs that rent what they need", claims, as_json=options.json)


def rented() -> list[Claim]:
    """The first part."""
    rates = throughputs()
    with (JOBS / f"traces/{TRACE}.csv").open() as file:
        rows = list(csv.DictReader(file))
    at_s, gpus, steps, slo, fastest_s = (
        np.array([float(row[column]) for row in rows])
        for column in ("arrival_s", "scale_factor", "total_steps", "slo_multiple", "v100_duration_s")
    )
    rate = np.array([rates[row["job_type"], row["scale_factor"]] for row in rows])
    jobs, on_time_s = Arrivals(at_s, rate, gpus, steps), at_s + slo * fastest_s
    optimum = json.loads((JOBS / "elastic_cost.json").read_text())[TRACE]["min_cost_with_slo"]
    claims = [Claim("the exact optimum without overheads, all on time", optimum, "USD")]
    for name, round_s, restart_s, target in (
        ("without overheads", 0.0, 0.0, 1.03),
        (f"rounds of {ROUND_S:g} s, starts of {RESTART_S:g} s", ROUND_S, RESTART_S, 1.10),
    ):
        found = ElasticMarket(jobs, on_time_s, USD_PER_H, round_s=round_s, restart_s=restart_s).run()
        late = int((found.ended_s > on_time_s + HARDLY_S).sum())
        claims += [
            Claim(f"{name}: cost", found.usd, "USD"),
            Claim(f"{name}: cost over the optimum", found.usd / optimum, "x", target),
            Claim(f"{name}: jobs that are late, of {len(rows)}", late, "jobs", 0),
            Claim(f"{name}: machines launched", found.launches, "machines"),
        ]
    with (JOBS / "reference_results.csv").open() as file:
        for row in csv.DictReader(file):
            of = (row["trace"], row["prices"], row["solver"]) == (TRACE, "gcp_static", "ECOS")
            if of and row["policy"].endswith("_SLOs"):
                claims += [
                    Claim("Gavel, cost policy with deadlines: cost", float(row["cost_usd"]), "USD"),
                    Claim("Gavel, cost policy with deadlines: late", int(row["slo_missed_true"]), "jobs"),
                ]
    return claims


def shared_cluster(count: int) -> list[Claim]:
    """The second part: random jobs in the manner of Gavel's generator, 5.6 an hour (seed 0)."""
    chance = np.random.default_rng(0)
    kinds = np.array([rates for (_, gpus), rates in throughputs().items() if gpus == "1"])
    rate = kinds[chance.integers(0, len(kinds), count)]
    minutes = 10 ** np.where(chance.random(count) < 0.8, chance.uniform(1.5, 3, count), chance.uniform(3, 4, count))
    at_s = np.cumsum(chance.exponential(3600 / 5.6, count))
    jobs = Arrivals(at_s, rate, np.ones(count), np.ceil(60 * minutes * rate[:, 0]))

    def shares(waiting: Collection) -> np.ndarray:
        return solve(max_min_fairness(waiting)).shares

    began_s = time.process_time()
    found = Cluster(jobs, Supply(np.full(len(WAYS), 36.0), USD_PER_H), shares).run()
    name = f"{count:,} jobs on 36 GPUs of each type, max-min fairness"
    return [
        Claim(f"{name}: CPU time of the simulation", time.process_time() - began_s, "s", 20.0),
        Claim(f"{name}: plans", found.solved, "plans"),
    ]


def throughputs() -> dict[tuple[str, str], list[float]]:
    """Steps/s on each type, by job type and number of GPUs."""
    with (JOBS / "throughputs_isolated.csv").open() as file:
        return {
            (row["job_type"], row["scale_factor"]): [float(row[each]) for each in WAYS] for row in csv.DictReader(file)
        }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
