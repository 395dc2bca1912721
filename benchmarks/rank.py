"""How long it takes to rank 100,000 GPU offers for a job, and for a thousand jobs; and that the ranking is right.

    python benchmarks/rank.py [--quick] [--json] [--peers]

The market is seeded and shaped like the catalogues of three clouds: regions, zones, instance types, spot and on-demand,
prices that differ by region and zone. Before each timed call one price changes, and the job is one not seen before: it
has data in a bucket and a checkpoint in some region, so that throughput, hazard and egress all count. A timed call is
`Market.learn` of the new price and `decide`. CPU time of this process; 200 calls (--quick: 60).

--peers also asks gpuhunt and SkyPilot for the same offers; they are installed into a venv of their own, for which a
package index must be reachable.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.market import Market
from orchestrator.model import (
    CHEAPEST,
    CheckpointSpec,
    DataSource,
    GpuRequest,
    Job,
    JobSpec,
    Objective,
    Resources,
    TrainSpec,
)
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, decide
from providers.hardware import GB
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

AT_MS = 1_780_000_000_000
OFFERS = 100_000
SHARES = {"aws": 0.62, "gcp": 0.32, "azure": 0.06}  # rows of the public catalogues (design note: 62,000 32,000 6,000)
REGIONS = {"aws": 30, "gcp": 40, "azure": 60}
ZONES = {"aws": 3, "gcp": 3, "azure": 1}
# Dollars per GPU-hour on demand, roughly, and the sizes in which clouds sell it.
GPUS = {
    "K80": (0.9, (1, 8, 16)),
    "P100": (1.5, (1, 2, 4)),
    "T4": (0.5, (1, 4, 8)),
    "V100": (3.0, (1, 4, 8)),
    "A10G": (1.0, (1, 4, 8)),
    "L4": (0.8, (1, 2, 4, 8)),
    "L40S": (1.9, (1, 4, 8)),
    "A100-40GB": (3.0, (1, 8, 16)),
    "A100-80GB": (4.0, (1, 2, 4, 8)),
    "H100": (8.0, (1, 8)),
    "H200": (9.0, (1, 8)),
    "B200": (12.0, (8,)),
}
REQUESTS = (  # the ten kinds of request of the earlier measurement
    ("V100", 1), ("V100", 8), ("T4", 1), ("A100-40GB", 8), ("A100-80GB", 8),
    ("H100", 8), ("L4", 1), ("A10G", 1), ("A100-40GB", 1), ("H200", 8),
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A market, and what its offers and prices were made of."""

    market: Market
    offers: list[Offer]
    book: PerfBook


def world(size: int, seed: int) -> World:
    """A seeded market of `size` offers."""
    draw = random.Random(seed)
    offers: list[Offer] = []
    points: list[PricePoint] = []
    for provider, share in SHARES.items():
        quota = round(size * share)
        sites = [(f"{provider}-r{r:02}", f"{provider}-r{r:02}-{'abc'[z]}") for r in range(REGIONS[provider]) for z in range(ZONES[provider])]
        shapes = [(gpu, count) for gpu, (_, counts) in GPUS.items() for count in counts]
        dear = {region: draw.uniform(1.0, 1.5) for region, _ in sites}
        made = 0
        variant = 0
        while made < quota:
            for gpu, count in shapes:
                for region, zone in sites:
                    for kind in CapacityType:
                        if made >= quota:
                            break
                        vcpu, memory = 8 * count * (1 + variant % 3), 64 * GB * count * (1 + variant % 3)
                        name = f"{gpu.lower()}-{count}.v{variant}"
                        offer = Offer(provider, region, zone, name, gpu, count, vcpu, memory, kind)
                        price = GPUS[gpu][0] * count * dear[region] * (1 + 0.05 * (variant % 3))
                        if kind is CapacityType.SPOT:
                            price *= draw.uniform(0.15, 0.7)
                        offers.append(offer)
                        points.append(PricePoint(offer.id, round(price * 1e9), AT_MS - 10**7, AT_MS - 10**7, "seeded"))
                        made += 1
            variant += 1
    order = list(range(len(offers)))
    draw.shuffle(order)
    market = Market.as_of(
        AT_MS, offers=[offers[i] for i in order], prices=[points[i] for i in order], startup_s={"aws": 200.0}
    )
    rates = [
        Observation(f"job_kind{number}", gpu, count, 2.0 + number, 5000, AT_MS - 10**6)
        for number, (gpu, count) in enumerate(REQUESTS)
    ]
    return World(market, offers, PerfBook.as_of(AT_MS, rates))


def demand(number: int, resources: Resources, *, steps: int, objective: Objective = CHEAPEST, kind: int = 0) -> Demand:
    """A job that has begun elsewhere: its checkpoint lies in some region, its data in a bucket."""
    spec = JobSpec(
        name=f"job-{number}",
        train=TrainSpec("train:main", None, {}, "/", {}, (), steps, None),
        resources=resources,
        objective=objective,
        data=(DataSource("s3://bucket/set", "/data", 120 * GB),),
        checkpoint=CheckpointSpec(),
    )
    job = Job(f"job_{number:06}", spec, "ada", AT_MS, "queued")
    places = (("aws", "aws-r03"), ("gcp", "gcp-r11"), ("azure", "azure-r07"))
    return Demand(job, steps, steps // 10, checkpoint_bytes=20 * GB, checkpoint_at=places[kind % 3])


ANY_GPU = Resources(gpu_memory_bytes=(1, None))


def requested(number: int) -> Resources:
    gpu, count = REQUESTS[number % len(REQUESTS)]
    return Resources(gpus=(GpuRequest(gpu, count),))


def timed_calls(setting: World, calls: int, *, any_gpu: bool) -> list[float]:
    """CPU seconds of each call; the market goes from call to call as it does in a daemon."""
    draw = random.Random(1)
    market, spent = setting.market, []
    ids = market.ids
    for call in range(calls):
        wanted = demand(call, ANY_GPU if any_gpu else requested(call), steps=50_000 + call, kind=call)
        at_ms = market.at + 1000
        price = int(market.price[market.row(ids[draw.randrange(len(ids))]) or 0] * draw.uniform(0.8, 1.2))
        point = PricePoint(ids[draw.randrange(len(ids))], price, at_ms, at_ms, "seeded")
        begun = time.process_time()
        market = market.learn(at_ms, prices=[point])
        plan = decide([wanted], market, setting.book, {})
        spent.append(time.process_time() - begun)
        assert plan.placements[0].action == "place"
    return spent


def timed_jobs(setting: World, jobs: int, *, alike: bool) -> float:
    """CPU seconds of one decision about `jobs` jobs of ten kinds; `alike`: the jobs of a kind agree in all but name."""
    demands = [
        demand(n, requested(n), steps=80_000 if alike else 50_000 + 37 * n, kind=n % len(REQUESTS)) for n in range(jobs)
    ]
    at_ms = setting.market.at + 1000
    ids = setting.market.ids
    begun = time.process_time()
    market = setting.market.learn(at_ms, prices=[PricePoint(ids[7], 10**9, at_ms, at_ms, "seeded")])
    plan = decide(demands, market, setting.book, {})
    spent = time.process_time() - begun
    assert len(plan.placements) == jobs
    return spent
