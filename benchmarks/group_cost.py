"""Claim: deciding a group together costs less and misses fewer deadlines than deciding each job alone or without its
speeds.

    python -m benchmarks.group_cost [--quick] [--json]

10, 100 and 1,000 jobs of one GPU are submitted together: 26 measured kinds (market/throughputs.csv.gz of the shared
data, from training_on_a_dime, MIT), lengths as Gavel's generator draws them, deadlines of 1.2, 2 and 10 times the
length on a V100. They rent K80, P100 and V100 machines at the spot prices that AWS (each zone) and Azure had from
2020-02-24 on (market/market_events.parquet); no deadline is later than these records. Each region has a quota for each
GPU, all of the same size, rounded up: together 0.75 machines per job, and then 0.4, which is too little for all to be
on time if there are 100 jobs or more. Amounts are simulated and fluid: no starts, no interruptions
(orchestrator.arena.fluid). Groups are drawn with seeds 0, 1, ...: ten of 10 jobs, three of 100, one of 1,000.

The benchmark compares the joint plan of least cost with deadlines; each job alone, in order, with the quotas that
earlier jobs leave; the joint plan that knows only each job's slowest speed; and the joint plan with each job only on
its fastest GPU. Late jobs also pay for all their work. Targets: nothing costs less than the joint plan, and nothing has
fewer late jobs. The joint plan gives up the least work, not the fewest jobs, so with too small quotas it can miss the
second target. --quick: three groups of 10 jobs, one of 100.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.arena.fluid import Decision, Group, Paid, agnostic, on_the_fastest, one_by_one, played, together
from orchestrator.policy.groups import Quota
from orchestrator.policy.groups.problem import Floats

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
RATES, PRICES = Path("market/throughputs.csv.gz"), Path("market/market_events.parquet")
BEGIN, END = datetime(2020, 2, 24, 12, tzinfo=UTC), datetime(2020, 3, 23, 12, tzinfo=UTC)
"""Azure's first day, when all prices are known; the last noon in AWS's records."""
HOUR_S = 3600.0
MACHINES_PER_JOB = (0.75, 0.4)
GROUPS, SAMPLE = {10: 10, 100: 3, 1000: 1}, {10: 3, 100: 1}
JOINT = "together"
WAYS_TO_DECIDE: dict[str, Decision] = {
    JOINT: together,
    "each alone": one_by_one,
    "without the speeds": agnostic,
    "on the fastest GPU": on_the_fastest,
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Offers of one GPU: `gpu` and `pool` (cloud, region, GPU) of each, and `usd_per_h` (hours, offers)."""

    gpu: tuple[str, ...]
    pool: tuple[tuple[str, str, str], ...]
    usd_per_h: Floats

    def each_quota(self, machines: float) -> float:
        """The number of machines per quota (all equal) for this total number."""
        return float(np.ceil(machines / len(set(self.pool))))

    def quotas(self, machines: float) -> tuple[Quota, ...]:
        """A quota of this many machines for each pool."""
        return tuple(
            Quota(" ".join(pool), np.array([way for way, of in enumerate(self.pool) if of == pool]), machines)
            for pool in sorted(set(self.pool))
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    if not (SHARED / PRICES).exists():
        print(f"skipped: {SHARED / PRICES} is not here (TRADEWIND_SHARED names the folder)", file=sys.stderr)
        return show("Groups at recorded prices", [], as_json=options.json)
    offers, kinds = recorded(SHARED / PRICES), kinds_of_jobs(SHARED / RATES)
    claims: list[Claim] = []
    for jobs, groups in (SAMPLE if options.quick else GROUPS).items():
        drawn = [group(jobs, kinds, offers, seed) for seed in range(groups)]
        for machines in sorted({offers.each_quota(jobs * per_job) for per_job in MACHINES_PER_JOB}, reverse=True):
            name = f"{groups} x {jobs:,} jobs, quotas of {machines:g}"
            claims += compared(name, drawn, offers, offers.quotas(machines))
    notes = [f"{len(offers.gpu)} offers, {len(set(offers.pool))} quotas; amounts are simulated"]
    return show("Groups at recorded prices", claims, as_json=options.json, notes=notes)


def compared(name: str, groups: Sequence[Group], offers: Recorded, quotas: tuple[Quota, ...]) -> list[Claim]:
    """The cost of all groups and the number of late jobs, for each way to decide."""
    found: dict[str, list[Paid]] = {
        way: [played(each, offers.usd_per_h, quotas, decide) for each in groups]
        for way, decide in WAYS_TO_DECIDE.items()
    }
    usd = {way: sum(each.usd for each in paid) for way, paid in found.items()}
    missed = {way: sum(each.late for each in paid) for way, paid in found.items()}
    claims: list[Claim] = []
    for way in WAYS_TO_DECIDE:
        joint = way == JOINT
        claims.append(Claim(f"{name}, {way}: cost", usd[way], "USD"))
        if not joint:
            claims.append(Claim(f"{name}, {way}: cost over together", usd[way] / usd[JOINT], "x", 1.0, least=True))
        target = min(missed[other] for other in missed if other != JOINT) if joint else None
        claims.append(Claim(f"{name}, {way}: late", missed[way], "jobs", target))
    return claims


def group(jobs: int, kinds: Sequence[dict[str, float]], offers: Recorded, seed: int) -> Group:
    """Random jobs in the manner of Gavel's generator: 80% of 10^1.5 to 10^3 minutes on a V100, the others up to
    10^4."""
    chance = np.random.default_rng(seed)
    kind = chance.integers(0, len(kinds), jobs)
    rate = np.array([[kinds[each].get(gpu, 0.0) for gpu in offers.gpu] for each in kind])
    minutes = 10 ** np.where(chance.random(jobs) < 0.8, chance.uniform(1.5, 3, jobs), chance.uniform(3, 4, jobs))
    deadline_s = 60 * minutes * chance.choice([1.2, 2.0, 10.0], jobs)
    v100 = np.array([kinds[each]["V100"] for each in kind])
    return Group(rate, 60 * minutes * v100, np.minimum(deadline_s, (END - BEGIN).total_seconds()))


def kinds_of_jobs(path: Path) -> list[dict[str, float]]:
    """Steps/s of each kind of job by GPU."""
    kinds: dict[str, dict[str, float]] = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"] == "dispa_oracle":
                kinds.setdefault(row["job_type"], {})[row["worker_type"].upper()] = float(row["steps_per_sec"])
    return [kinds[name] for name in sorted(kinds)]


def recorded(path: Path) -> Recorded:
    """The spot offers of one GPU, with the last known price at the start of each hour."""
    import pyarrow.parquet as pq

    columns = ["observed_at", "cloud", "region", "zone", "instance_type", "gpu", "gpus", "market", "usd_h"]
    known: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in pq.read_table(path, columns=columns).to_pylist():
        if (row["market"], row["gpus"]) == ("spot", 1) and row["observed_at"] < END:
            offer = tuple(row[column] for column in ("cloud", "region", "gpu", "zone", "instance_type"))
            known.setdefault(offer, []).append((row["observed_at"].timestamp(), row["usd_h"]))
    hours = np.arange(BEGIN.timestamp(), END.timestamp(), HOUR_S)
    offers = sorted(offer for offer, points in known.items() if min(points)[0] <= hours[0])
    usd_per_h = np.column_stack([as_of(sorted(known[offer]))(hours) for offer in offers])
    pools = tuple((cloud, region, gpu) for cloud, region, gpu, *_ in offers)
    return Recorded(tuple(gpu for _, _, gpu in pools), pools, usd_per_h)


def as_of(points: Sequence[tuple[float, float]]) -> Callable[[Floats], Floats]:
    """A function from times to the last known price."""
    at, usd = np.array(points).T

    def price(times: Floats) -> Floats:
        found: Floats = usd[np.searchsorted(at, times, side="right") - 1]
        return found

    return price


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
