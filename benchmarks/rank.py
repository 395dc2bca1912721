"""The time to rank 100,000 GPU offers, or 60, for one job and for a thousand jobs, and the correctness of the ranking.

    python benchmarks/rank.py [--quick] [--json] [--peers]

The market is seeded and has the shape of three clouds' catalogues: regions, zones, instance types, spot and on-demand,
prices that differ by region and zone. Before each timed call one price changes, and the job is a new one, with data in
a bucket and a checkpoint in some region, so that throughput, hazard and egress all matter. A timed call is
`Market.learn` of the new price, then `decide`. Times are CPU time of this process, one thread; 200 calls (--quick: 60).
With 60 offers, only the decision is timed, in eight situations: the job waits or runs, with and without a deadline, its
speed measured or not.

--peers also queries gpuhunt and SkyPilot for the same offers. They are installed into temporary virtual environments,
which needs a package index (SkyPilot has some 100 packages and takes minutes).
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import time
from dataclasses import dataclass, replace
from itertools import product

import benchmarks._one_thread  # noqa: F401  isort: skip
from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from benchmarks._peers import Answer, Peer, ask
from orchestrator.market import AvailabilityPoint, Market
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
from orchestrator.policy import Demand, MoveLimits, Running, cheapest, decide
from providers.hardware import GB
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

AT_MS = 1_780_000_000_000
OFFERS = 100_000
FEW_OFFERS = 60
SHARES = {"aws": 0.62, "gcp": 0.32, "azure": 0.06}  # like the numbers of rows in the public catalogues
REGIONS = {"aws": 30, "gcp": 40, "azure": 60}
ZONES = {"aws": 3, "gcp": 3, "azure": 1}
# Rough dollars per GPU-hour on demand, and the GPU counts in which clouds sell it.
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
class SeededMarket:
    """A market and the offers and prices that it was built from."""

    market: Market
    offers: list[Offer]
    prices: list[int]  # nano-USD per hour, as the offers
    book: PerfBook


def seeded_market(size: int, seed: int) -> SeededMarket:
    """A seeded market of `size` offers."""
    draw = random.Random(seed)
    offers: list[Offer] = []
    points: list[PricePoint] = []
    for provider, share in SHARES.items():
        quota = round(size * share)
        regions = [f"{provider}-r{number:02}" for number in range(REGIONS[provider])]
        sites = [(region, f"{region}-{zone}") for region in regions for zone in "abc"[: ZONES[provider]]]
        shapes = [(gpu, count) for gpu, (_, counts) in GPUS.items() for count in counts]
        markup = {region: draw.uniform(1.0, 1.5) for region, _ in sites}
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
                        price = GPUS[gpu][0] * count * markup[region] * (1 + 0.05 * (variant % 3))
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
    prices = [point.nano_usd_per_hour for point in points]
    return SeededMarket(market, offers, prices, PerfBook.as_of(AT_MS, rates))


def demand(number: int, resources: Resources, *, steps: int, objective: Objective = CHEAPEST, kind: int = 0) -> Demand:
    """A job that has started elsewhere: its checkpoint is in some region, its data in a bucket."""
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


def timed_calls(setting: SeededMarket, calls: int, *, any_gpu: bool) -> list[float]:
    """CPU seconds of each call. Each call continues with the market of the one before, as in a control plane."""
    draw = random.Random(1)
    market, spent = setting.market, []
    ids = market.ids
    for call in range(calls):
        wanted = demand(call, ANY_GPU if any_gpu else requested(call), steps=50_000 + call, kind=call)
        at_ms = market.at + 1000
        row = draw.randrange(len(ids))
        point = PricePoint(ids[row], int(market.price[row] * draw.uniform(0.8, 1.2)), at_ms, at_ms, "seeded")
        begun = time.process_time()
        market = market.learn(at_ms, prices=[point])
        plan = decide([wanted], market, setting.book, {})
        spent.append(time.process_time() - begun)
        assert plan.placements[0].action == "place"
    return spent


def few_offers(seed: int) -> SeededMarket:
    """A market of FEW_OFFERS offers of four kinds of one GPU, drawn from a larger one, whose prices were polled."""
    large = seeded_market(3_000, seed)
    kinds = [(gpu, 1) for gpu in ("V100", "T4", "L4", "A10G")]
    fitting = [number for number, offer in enumerate(large.offers) if (offer.gpu, offer.gpu_count) in kinds]
    drawn = random.Random(seed).sample(fitting, FEW_OFFERS)
    offers, prices = [large.offers[number] for number in drawn], [large.prices[number] for number in drawn]
    learned = AT_MS - 10**7
    points = [
        PricePoint(offer.id, price, learned, learned, "seeded") for offer, price in zip(offers, prices, strict=True)
    ]
    polls = [((name, "", None), AT_MS) for name in SHARES]
    market = Market.as_of(AT_MS, offers=offers, prices=points, polls=polls, startup_s={"aws": 200.0})
    return SeededMarket(market, offers, prices, large.book)


def timed_few(setting: SeededMarket, calls: int) -> dict[str, list[float]]:
    """CPU seconds of each decision in a market that has just learned one price, by situation of the job."""
    spent: dict[str, list[float]] = {}
    here = next(offer.id for offer in setting.offers if offer.gpu == "T4")
    for runs, deadline, measured in product((False, True), repeat=3):
        draw, market = random.Random(1), setting.market
        name = ", ".join(
            (
                "it runs" if runs else "it waits",
                "a deadline" if deadline else "no deadline",
                "known speed" if measured else "unknown speed",
            )
        )
        for call in range(calls):
            wanted = demand(call, ANY_GPU, steps=5_000_000 + call, kind=call)
            job = wanted.job
            if deadline:
                job = replace(job, spec=replace(job.spec, deadline_at_ms=AT_MS + 10**10))
            seen = [Observation(job.id, "T4", 1, 10.0, 5000, AT_MS - 10**6)] if measured else []
            running = {job.id: Running(here, AT_MS - 10**8)} if runs else {}
            at_ms, row = market.at + 1000, draw.randrange(FEW_OFFERS)
            point = PricePoint(market.ids[row], int(market.price[row] * draw.uniform(0.8, 1.2)), at_ms, at_ms, "seeded")
            market, book = market.learn(at_ms, prices=[point]), PerfBook.as_of(AT_MS, seen)
            begun = time.process_time()
            decide([replace(wanted, job=job)], market, book, running)
            spent.setdefault(name, []).append(time.process_time() - begun)
    return spent


def timed_jobs(setting: SeededMarket, jobs: int, *, alike: bool) -> float:
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


def with_shut_spot(setting: SeededMarket) -> SeededMarket:
    """The same after most of the cheapest spot offers of each request were refused or lost minutes ago."""
    draw, at_ms, points = random.Random(7), setting.market.at + 1000, []
    for number in range(len(REQUESTS)):
        for offer_id in brute_force(setting, number, spot=True, count=20):
            if draw.random() < 0.7:
                gone_ms = at_ms - draw.randrange(60_000, 800_000)
                points.append(AvailabilityPoint(offer_id, gone_ms - draw.randrange(1, 4) * 7_200_000, "launched"))
                points.append(AvailabilityPoint(offer_id, gone_ms, "lost"))
    points.sort(key=lambda point: point.at_ms)
    return replace(setting, market=setting.market.learn(at_ms, availability=points))


def timed_deadlines(setting: SeededMarket, jobs: int, *, run: bool) -> float:
    """CPU seconds of one decision about `jobs` jobs with different deadlines and lengths and known speed, in a market
    without spot capacity; `run`: every second job runs on spot."""
    draw, now_ms = random.Random(3), setting.market.at
    places = [brute_force(setting, number, spot=True, count=60) for number in range(len(REQUESTS))]
    demands, running, seen = [], {}, []
    for number in range(jobs):
        kind, rate = number % len(REQUESTS), 2.0 + number % len(REQUESTS)
        wanted = demand(number, requested(number), steps=50_000 + 37 * number, kind=number)
        hours = (wanted.job.spec.train.steps or 0) / rate / 3600
        due_ms = now_ms + round((1 + hours * draw.uniform(1.3, 4)) * 3.6e6)
        job = replace(wanted.job, spec=replace(wanted.job.spec, deadline_at_ms=due_ms))
        demands.append(replace(wanted, job=job))
        seen.append(Observation(job.id, *REQUESTS[kind], rate, 5000, AT_MS - 10**6))
        if run and number % 2:
            running[job.id] = Running(draw.choice(places[kind]), now_ms - draw.randrange(3_600_000, 80_000_000))
    at_ms, book = now_ms + 1000, PerfBook.as_of(AT_MS, seen)
    begun = time.process_time()
    point = PricePoint(setting.market.ids[7], 10**9, at_ms, at_ms, "seeded")
    plan = decide(demands, setting.market.learn(at_ms, prices=[point]), book, running)
    spent = time.process_time() - begun
    assert any(placement.action == "wait" for placement in plan.placements)
    return spent


def timed_waiting(setting: SeededMarket, calls: int) -> list[float]:
    """CPU seconds of each decision on a job with a deadline, in a market of few offers whose cheap ones are shut, every
    five minutes with a new price."""
    draw, market = random.Random(1), setting.market
    cheapest = sorted(range(len(setting.offers)), key=setting.prices.__getitem__)
    shut = [setting.offers[number].id for number in cheapest if setting.offers[number].spot][:6]
    book, spent = PerfBook.as_of(AT_MS, [Observation("job_000000", "T4", 1, 10.0, 5000, AT_MS - 10**6)]), []
    wanted = demand(0, ANY_GPU, steps=5_000_000)
    wanted = replace(wanted, job=replace(wanted.job, spec=replace(wanted.job.spec, deadline_at_ms=AT_MS + 10**9)))
    for _ in range(calls):
        at_ms, row = market.at + 300_000, draw.randrange(FEW_OFFERS)
        point = PricePoint(market.ids[row], int(market.price[row] * draw.uniform(0.8, 1.2)), at_ms, at_ms, "seeded")
        refused = [AvailabilityPoint(offer_id, at_ms - 1000, "refused") for offer_id in shut]
        market = market.learn(at_ms, prices=[point], availability=refused)
        begun = time.process_time()
        decide([wanted], market, book, {})
        spent.append(time.process_time() - begun)
    return spent


def brute_force(setting: SeededMarket, number: int, spot: bool, count: int) -> list[str]:
    """Ids of the cheapest offers for a request, by brute force."""
    wants = REQUESTS[number]
    fitting = [
        (price, offer.id)
        for offer, price in zip(setting.offers, setting.prices, strict=True)
        if (offer.gpu, offer.gpu_count) == wants and offer.spot is spot
    ]
    return [offer_id for _, offer_id in sorted(fitting)[:count]]


def by_price(setting: SeededMarket, count: int) -> tuple[int, list[float]]:
    """(queries whose `count` cheapest differ from brute force, CPU seconds of each)."""
    wrong, spent = 0, []
    for number in range(len(REQUESTS)):
        for spot in (True, False):
            capacity = (CapacityType.SPOT if spot else CapacityType.ON_DEMAND,)
            train = TrainSpec("train:main", None, {}, "/", {}, (), 1, None)
            spec = JobSpec("q", train, resources=requested(number), capacity=capacity)
            begun = time.process_time()
            found = cheapest(spec, setting.market, count, limits=MoveLimits())
            spent.append(time.process_time() - begun)
            wrong += found != brute_force(setting, number, spot, count)
    return wrong, spent


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[min(int(len(seconds) * 0.95), len(seconds) - 1)]


def peers_table(answers: list[Answer], plain: list[float], setting: SeededMarket) -> Table:
    """The times and answers of the other tools, next to Tradewind's query by price and its ranking for a job."""
    table = Table("", "offers of", "queries", "CPU median", "CPU p95", "same cheapest as brute force")
    table.title = "The same offers, by price per hour"
    cells = (f"{statistics.median(plain):.4f} s", f"{p95(plain):.4f} s")
    table.add_row("tradewind (policy.cheapest)", ", ".join(SHARES), str(len(plain)), *cells, "see above")
    for answer in answers:
        if answer.skipped:
            table.add_row(answer.name, "", "", "", "", f"skipped: {answer.skipped}")
            continue
        least: dict[tuple[int, bool], float] = {}
        for offer, nano in zip(setting.offers, setting.prices, strict=True):
            wants = (offer.gpu or "", offer.gpu_count)
            if offer.provider in answer.clouds and wants in REQUESTS:
                key = (REQUESTS.index(wants), offer.spot)
                least[key] = min(least.get(key, math.inf), nano / 1e9)
        same = sum(math.isclose(usd, least[key], rel_tol=1e-6) for key, usd in answer.cheapest_usd.items())
        cells = (f"{statistics.median(answer.seconds):.4f} s", f"{p95(answer.seconds):.4f} s")
        count = f"{same} of {len(answer.cheapest_usd)}"
        table.add_row(answer.name, ", ".join(answer.clouds), str(len(answer.seconds)), *cells, count)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="60 calls instead of 200")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", action="store_true", help="also install and query gpuhunt and SkyPilot")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    setting = seeded_market(OFFERS, options.seed)
    gc.collect()
    gc.freeze()  # keep the garbage collector from scanning the 200,000 objects from which the market was built
    calls = 60 if options.quick else 200
    timed_calls(setting, 3, any_gpu=False)  # warm up imports and caches
    one = timed_calls(setting, calls, any_gpu=False)
    every = timed_calls(setting, calls // 4, any_gpu=True)
    alike = timed_jobs(setting, 1000, alike=True)
    unlike = timed_jobs(setting, 1000, alike=False)
    wrong, plain = by_price(setting, 20)
    few = few_offers(options.seed)
    timed_few(few, 5)
    shut = with_shut_spot(setting)
    deadlines = timed_deadlines(shut, 1000, run=True)
    all_wait = timed_deadlines(shut, 1000, run=False)
    waits = timed_waiting(few, calls)
    of_few = {name: statistics.mean(spent) for name, spent in timed_few(few, calls).items()}
    slowest = max(of_few, key=of_few.__getitem__)
    ms = 1000.0
    claims = [
        Claim(
            f"one new job, one price changed, {len(setting.offers):,} offers: median",
            statistics.median(one) * ms,
            "ms",
            10,
        ),
        Claim("one new job: 95th percentile", p95(one) * ms, "ms", 10),
        Claim("1,000 jobs of 10 kinds in one decision", alike, "s", 1),
        Claim("1,000 jobs of 10 kinds, each of another length", unlike, "s"),
        Claim("a job that takes any GPU (all offers are candidates): median", statistics.median(every) * ms, "ms"),
        Claim(f"{FEW_OFFERS} offers, one job, new price: decided in", statistics.mean(of_few.values()) * ms, "ms", 1),
        Claim(f"{FEW_OFFERS} offers, the slowest situation: {slowest}", of_few[slowest] * ms, "ms", 1),
        Claim("1,000 jobs with deadlines, cheap spot is shut, half of them run", deadlines, "s", 5),
        Claim("the same, and none runs", all_wait, "s", 5),
        Claim(f"{FEW_OFFERS} offers, a deadline, cheap spot is shut: mean", statistics.mean(waits) * ms, "ms", 5),
        Claim("the same, the slowest", max(waits) * ms, "ms"),
        Claim("by price alone, the 20 cheapest: median", statistics.median(plain) * ms, "ms"),
        Claim("by price alone, queries of 20 that differ from brute force", wrong, "queries", 0),
    ]
    if options.peers:
        rows = [
            (
                o.provider,
                o.region,
                o.zone,
                o.instance_type,
                o.gpu or "",
                o.gpu_count,
                o.vcpu,
                o.memory_bytes / GB,
                o.spot,
                p / 1e9,
            )
            for o, p in zip(setting.offers, setting.prices, strict=True)
        ]
        answers = [ask(peer, rows, REQUESTS) for peer in Peer]
        for answer in answers:
            if not answer.skipped:
                claims.append(Claim(f"{answer.name}, a query by price: median", statistics.median(answer.seconds), "s"))
        if not options.json:
            Console(width=140).print(peers_table(answers, plain, setting))
    notes = [f"{calls} calls; p95 over median {p95(one) / statistics.median(one):.2f}; process CPU time, one thread"]
    return show("Ranking", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    raise SystemExit(main())
