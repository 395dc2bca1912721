"""Whatever is skipped, shared or worked out once per cell: the ranking is that of looking at each offer by itself.

The brute force below is the formula of orchestrator/policy/ranking/cost.py, written for one offer, without arrays.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from orchestrator.market import AvailabilityPoint, Market
from orchestrator.model import (
    CHEAPEST,
    FASTEST,
    CheckpointSpec,
    DataSource,
    GpuRequest,
    Job,
    JobSpec,
    Objective,
    Resources,
    TrainSpec,
    Where,
)
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, MoveLimits, cheapest, decide
from providers.hardware import GB
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

AT = 1_700_000_000_000
KINDS = (("T4", 1), ("V100", 1), ("V100", 4), ("H100", 8))
STARTUP_S = {"aws": 200.0, "gcp": 90.0}
RATE_PER_GB = {"aws": (0.02, 0.09), "gcp": (0.08, 0.12)}  # within the provider, out of it: the typical tariff
STORAGE_PER_GB_MONTH = {"aws": 0.023, "gcp": 0.020}
PLACE = ("gcp", "r1")


class Scene:
    """A few hundred offers: more than are listed one by one, and more than are found without cells."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.offers, self.prices, self.usd = [], [], {}
        for provider in ("aws", "gcp"):
            for region in range(4):
                for zone in "ab":
                    for number in range(6):
                        gpu, count = KINDS[number % len(KINDS)]
                        for capacity in CapacityType:
                            offer = Offer(
                                provider,
                                f"r{region}",
                                f"r{region}{zone}",
                                f"m{number}",
                                gpu,
                                count,
                                8,
                                64 * GB,
                                capacity,
                            )
                            price = round(draw.uniform(0.2, 9.0), 2) * count  # two digits: some prices are equal
                            self.offers.append(offer)
                            self.usd[offer.id] = price
                            self.prices.append(PricePoint(offer.id, round(price * 1e9), AT - 10, AT - 10, "t"))
        spots = [offer.id for offer in self.offers if offer.spot]
        self.seen = []
        for offer_id in draw.sample(spots, 12 if seed != 2 else 0):  # of seed 2 every offer can be used
            self.seen.append(AvailabilityPoint(offer_id, AT - 40 * 3_600_000, "launched"))
            self.seen += [
                AvailabilityPoint(offer_id, AT - h * 3_600_000, "lost") for h in draw.sample(range(20, 39), 2)
            ]
        self.market = Market.as_of(
            AT, offers=self.offers, prices=self.prices, availability=self.seen, startup_s=STARTUP_S
        )
        self.rates = {kind: draw.uniform(0.5, 20) for kind in KINDS}
        self.book = PerfBook.as_of(
            AT, [Observation("job_1", gpu, count, rate, 4000, AT) for (gpu, count), rate in self.rates.items()]
        )
        self.hazard = {self.market.ids[row]: float(self.market.hazard[row]) for row in range(len(self.market))}

    def demand(self, objective: Objective, **spec: object) -> Demand:
        train = TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)
        data = (DataSource("s3://bucket/set", "/data", 200 * GB),)
        checkpoint = CheckpointSpec(to="gs://bucket/ck", keep=2, max_overhead=0.02)
        job = Job(
            "job_1",
            JobSpec("j", train, objective=objective, data=data, checkpoint=checkpoint, **spec),
            "a",
            AT,
            "queued",
        )
        return Demand(job, 400_000, 1000, checkpoint_bytes=30 * GB, checkpoint_s=20.0, checkpoint_at=PLACE)

    def outcome(self, offer: Offer) -> tuple[float, float]:
        """(dollars, seconds) that finishing on one offer is expected to take."""
        outside = RATE_PER_GB[offer.provider][1]
        there = (offer.provider, offer.region)
        from_gcp_region = 0.0 if there == PLACE else RATE_PER_GB["gcp"][0 if offer.provider == "gcp" else 1]
        data = 200 * (0.0 if offer.provider == "aws" else RATE_PER_GB["aws"][1])
        restore = 30 * (0.0 if offer.provider == "gcp" else RATE_PER_GB["gcp"][1])
        upload = 30 * (0.0 if offer.provider == "gcp" else outside)
        interval_s = min(20.0 / 0.02, 3600.0)
        startup_s = STARTUP_S[offer.provider]
        setback_s = startup_s + interval_s / 2
        hazard_s = self.hazard[offer.id] / 3600
        work_s = 399_000 / self.rates[offer.gpu, offer.gpu_count] * 1.02
        losses = hazard_s * work_s / max(1 - hazard_s * setback_s, 0.1)
        run_s = work_s + losses * setback_s
        begin_s = startup_s + (0.0 if there == PLACE else 30e9 / 125e6)
        price_s = self.usd[offer.id] / 3600
        storage_s = STORAGE_PER_GB_MONTH[offer.provider] * 30 * 2 / (730 * 3600)
        dues = (run_s + begin_s) * storage_s + run_s * upload / interval_s + losses * (data + restore)
        cost = price_s * max(run_s + begin_s, 60.0) + dues + 30 * from_gcp_region + data
        return cost, run_s + begin_s


@pytest.fixture(scope="module", params=[1, 2, 3])
def scene(request):
    return Scene(request.param)


@pytest.mark.parametrize("objective", [CHEAPEST, FASTEST, Objective(0.5, 0.5), Objective(0.8, 0.2)])
def test_the_best_offers_are_those_of_a_brute_force_search(scene, objective):
    a, b = objective.cost_weight, objective.time_weight
    outcomes = {
        offer.id: scene.outcome(offer)
        for offer in scene.offers
        if not scene.market.backed_off[scene.market.row(offer.id)]
    }
    if objective == FASTEST:  # cost decides among those within 3% of the earliest finish
        earliest_s = min(seconds for _, seconds in outcomes.values())
        value = {
            offer_id: (max(seconds / earliest_s, 1.03), math.log(cost))
            for offer_id, (cost, seconds) in outcomes.items()
        }
    else:
        value = {
            offer_id: (0.0, a * math.log(cost) + b * math.log(seconds))
            for offer_id, (cost, seconds) in outcomes.items()
        }
    expected = sorted(value.values())
    (placement,) = decide([scene.demand(objective)], scene.market, scene.book, {}).placements
    reported = [each for each in placement.alternatives if each.feasible]
    assert placement.considered == len(scene.offers)
    assert len(reported) >= 6
    for rank, each in enumerate(reported[:6]):
        cost, seconds = outcomes[each.offer_id]
        if scene.hazard[each.offer_id] == 0:
            assert each.cost_nano_usd == pytest.approx(cost * 1e9, rel=1e-6)
            assert each.duration_s == pytest.approx(seconds, rel=1e-9)
        else:  # what is shown also counts going elsewhere and waiting after losses
            assert each.cost_nano_usd >= cost * 1e9 * (1 - 1e-6)
            assert each.duration_s >= seconds * (1 - 1e-9)
        assert value[each.offer_id] == pytest.approx(expected[rank], abs=1e-9)
    assert placement.alternatives[0].offer_id == placement.offer_id
    kept = placement.kept_up_to_nano_usd_per_hour
    if kept is not None:  # at that price it is level with the next best
        offer = next(each for each in scene.offers if each.id == placement.offer_id)
        scene_cost, seconds = outcomes[offer.id]
        level = scene_cost + (kept / 1e9 - scene.usd[offer.id]) * seconds / 3600
        weight, time_weight = (1.0, 0.0) if objective == FASTEST else (a, b)
        assert weight * math.log(level) + time_weight * math.log(seconds) == pytest.approx(expected[1][1], abs=1e-6)


def test_the_parts_add_up_to_the_cost(scene):
    for objective in (CHEAPEST, FASTEST):
        (placement,) = decide([scene.demand(objective)], scene.market, scene.book, {}).placements
        parts = placement.parts
        amounts = [getattr(parts, name) for name in parts.__slots__]
        assert sum(amounts) == placement.cost_nano_usd
        assert all(amount >= 0 for amount in amounts)
        assert parts.egress_nano_usd > 0
        assert parts.storage_nano_usd > 0


def test_jobs_that_are_alike_get_what_each_gets_alone(scene):
    alone = decide([scene.demand(CHEAPEST)], scene.market, scene.book, {}).placements[0]
    demand = scene.demand(CHEAPEST)

    twins = [replace(demand, job=replace(demand.job, id=f"job_{n}")) for n in (2, 3)]
    blank = PerfBook.as_of(AT, ())
    first, second = decide(twins, scene.market, blank, {}).placements
    assert replace(first, job_id="job_3") == second
    assert decide([twins[0]], scene.market, blank, {}).placements == (first,)
    assert alone.throughput.provenance.startswith("measured")


@pytest.mark.parametrize("capacity", [*((kind,) for kind in CapacityType), tuple(CapacityType)])
@pytest.mark.parametrize("regions", [(), ("r[12]",)])
def test_by_price_alone_the_cheapest_are_those_of_a_scan(scene, capacity, regions):
    wants = Resources(gpus=(GpuRequest("V100", 4), GpuRequest("T4", 1)))
    spec = scene.demand(CHEAPEST, capacity=capacity, resources=wants, where=Where(regions=regions)).job.spec
    fitting = sorted(
        (scene.usd[offer.id], offer.id)
        for offer in scene.offers
        if (offer.gpu, offer.gpu_count) in (("V100", 4), ("T4", 1))
        and offer.capacity_type in capacity
        and (not regions or offer.region in ("r1", "r2"))
        and not scene.market.backed_off[scene.market.row(offer.id)]
    )
    for count in (1, 5, 1000):
        assert cheapest(spec, scene.market, count, limits=MoveLimits()) == [offer_id for _, offer_id in fitting[:count]]


def test_a_large_market_is_summarised_by_its_best_its_nearest_misses_and_counts(scene):
    demand = scene.demand(CHEAPEST, resources=Resources(gpus=(GpuRequest("H100", 8),)), where=Where(regions=("r0",)))
    (placement,) = decide([demand], scene.market, scene.book, {}).placements
    assert len(placement.alternatives) < 15
    assert sum(each.count for each in placement.rejected) + sum(
        offer.gpu == "H100" and offer.region == "r0" and not scene.market.backed_off[scene.market.row(offer.id)]
        for offer in scene.offers
    ) == len(scene.offers)
    assert {each.topic for each in placement.rejected} <= {"GPU type", "region", "no capacity"}
    misses = [each for each in placement.alternatives if not each.feasible]
    assert misses
    assert all("excluded by where.regions" in each.reason or "lost there" in each.reason for each in misses)
    sites = {each.offer_id.split("/")[2] for each in placement.alternatives if each.feasible}
    assert len(sites) > 1  # a standby would stand elsewhere
