"""The objective changes the choice: which GPU wins for 26 job kinds by cost, by time and by cost x time.

    python benchmarks/objectives.py [--quick] [--json]

Reproduces the winners of Narayanan et al. 2020 under three sets of prices with the product's own ranking (`decide`),
from the measured rates of that paper's repository (the `dispa_oracle` rows of market/throughputs.csv.gz in the shared
data, MIT). As in the paper, machines are never preempted, start immediately and are billed per GPU. Takes about a
second; --quick changes nothing.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks._claims import Claim, show
from orchestrator.market import Market
from orchestrator.model import CHEAPEST, FASTEST, CheckpointSpec, Job, JobSpec, Objective, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, decide
from providers.hardware import GB
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SHARED = Path(os.environ.get("TRADEWIND_SHARED", Path(__file__).parents[2] / "shared"))
RATES = "market/throughputs.csv.gz"
AT_MS = 1_583_020_800_000  # 2020-03-01
STEPS = 10**9

# USD per GPU-hour. AWS: cheapest zone of any size on 2020-03-01 (p2.16xlarge / 16, p3.16xlarge / 8, us-east-1); Azure:
# NC6, NC6s v2, NC6s v3 on that day; GCP: on demand. Logs of stanford-futuredata/training_on_a_dime, MIT.
PRICES = {
    "AWS spot": {"K80": "0.27", "V100": "0.918"},
    "AWS and Azure spot": {"K80": "0.11889", "P100": "0.27241", "V100": "0.60313"},
    "GCP on-demand": {"K80": "0.52", "P100": "1.68", "V100": "2.85"},
}
OBJECTIVES = {"cost": CHEAPEST, "time": FASTEST, "cost x time": Objective(0.5, 0.5)}
PUBLISHED: dict[tuple[str, str], dict[str, int]] = {
    ("AWS spot", "cost"): {"K80": 9, "V100": 17},
    ("AWS spot", "time"): {"V100": 26},
    ("AWS spot", "cost x time"): {"K80": 1, "V100": 25},
    ("AWS and Azure spot", "cost"): {"K80": 8, "P100": 15, "V100": 3},
    ("AWS and Azure spot", "time"): {"P100": 1, "V100": 25},
    ("AWS and Azure spot", "cost x time"): {"K80": 4, "P100": 4, "V100": 18},
    ("GCP on-demand", "cost"): {"K80": 12, "P100": 6, "V100": 8},
}


def oracle(path: Path) -> dict[str, dict[str, float]]:
    """Steps per second by job kind and GPU."""
    rates: dict[str, dict[str, float]] = defaultdict(dict)
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"] == "dispa_oracle":
                rates[row["job_type"]][row["worker_type"].upper()] = float(row["steps_per_sec"])
    return dict(rates)


def winners(
    rates: Mapping[str, Mapping[str, float]], prices: Mapping[str, str], objective: Objective
) -> dict[str, str]:
    """The GPU that `decide` chooses for each job kind."""
    offers = {gpu: Offer("cloud", "r", "z", gpu, gpu, 1, 8, 60 * GB, CapacityType.ON_DEMAND) for gpu in prices}
    points = [PricePoint(offers[gpu].id, usd(price), AT_MS, AT_MS, "2020") for gpu, price in prices.items()]
    market = Market.as_of(AT_MS, offers=offers.values(), prices=points, startup_s={"cloud": 0.0})
    seen = [
        Observation(name, gpu, 1, rate, STEPS, AT_MS)
        for name, of in rates.items()
        for gpu, rate in of.items()
        if rate > 0  # 0: it does not fit
    ]
    demands = []
    for name in rates:
        train = TrainSpec(f"{name}:main", None, {}, "/", {}, (), STEPS, None)
        spec = JobSpec(name, train, objective=objective, checkpoint=CheckpointSpec(max_overhead=0.0))
        demands.append(Demand(Job(name, spec, "paper", AT_MS, "queued"), STEPS))
    plan = decide(demands, market, PerfBook.as_of(AT_MS, seen), {})
    gpus = {offer.id: gpu for gpu, offer in offers.items()}
    return {placement.job_id: gpus[placement.offer_id] for placement in plan.placements if placement.offer_id}


def counted() -> dict[tuple[str, str], dict[str, int]]:
    """The number of job kinds that each GPU wins, by price set and objective."""
    rates = oracle(SHARED / RATES)
    return {
        (prices, name): dict(sorted(Counter(winners(rates, PRICES[prices], objective).values()).items()))
        for prices in PRICES
        for name, objective in OBJECTIVES.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (SHARED / RATES).exists():
        print(f"skipped: {SHARED / RATES} is not here (TRADEWIND_SHARED names the folder)")
        return 0
    found = counted()
    wrong = [key for key, expected in PUBLISHED.items() if found[key] != expected]
    claims = [
        Claim("price sets and objectives whose winners differ from the published ones", len(wrong), "of 7", 0),
        Claim("job kinds counted", sum(found["AWS spot", "cost"].values()), "job kinds", 26, least=True),
    ]
    notes = [
        f"{prices}, {name}: "
        + ", ".join(f"{gpu} {count}" for gpu, count in of.items())
        + ("" if (prices, name) not in PUBLISHED else "  (as published)" if (prices, name) not in wrong else "  WRONG")
        for (prices, name), of in found.items()
    ]
    return show("Which GPU wins", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    raise SystemExit(main())
