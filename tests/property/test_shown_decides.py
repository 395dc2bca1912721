"""What is shown of an offer decides: no other offer in a plan is shown as better by the job's own objective."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, HazardPrior, Market
from orchestrator.model import (
    CHEAPEST,
    FASTEST,
    Alternative,
    CheckpointSpec,
    Job,
    JobSpec,
    Objective,
    Placement,
    TrainSpec,
)
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, MoveLimits, decide
from orchestrator.policy.explanation.compare import prospects
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

AT = 1_700_000_000_000
HOUR = 3_600_000
GPUS = {"T4": 1.0, "V100": 3.0, "A100-80GB": 7.0}  # steps per second
OBJECTIVES = (CHEAPEST, FASTEST, Objective(0.5, 0.5), Objective(0.9, 0.1))
CLOUDS = ("aws", "gcp", "azure")


class Scene:
    """A market of random prices, hazards and outages on three clouds, in which the job's speed is known everywhere."""

    def __init__(self, seed: int, shapes: int) -> None:
        draw = random.Random(seed)
        offers = [
            Offer(cloud, region, f"{region}-{zone}", f"{gpu.lower()}-{shape}", gpu, 1, 8, 64 * 10**9, capacity)
            for cloud in CLOUDS
            for region in ("r0", "r1")
            for zone in "ab"
            for gpu in GPUS
            for shape in range(shapes)
            for capacity in CapacityType
            if draw.random() < 0.6 or shapes > 1
        ]
        prices = []
        for offer in offers:
            dollars = GPUS[offer.gpu or ""] * draw.uniform(0.8, 1.2) * (draw.uniform(0.2, 0.7) if offer.spot else 1.0)
            prices.append(PricePoint(offer.id, round(dollars * 1e9), AT - 10, AT - 10, "t"))
        seen = []
        for offer in offers:
            if offer.spot and draw.random() < 0.3:  # an outage that has ended
                gone, back = draw.uniform(30, 60), draw.uniform(1, 20)
                for hours, kind in ((gone + 2, "launched"), (gone, "lost"), (back, "launched"), (0.5, "released")):
                    seen.append(AvailabilityPoint(offer.id, AT - round(hours * HOUR), kind))
        seen.sort(key=lambda point: point.at_ms)
        priors = {
            (each.provider, each.region, each.instance_type): HazardPrior(draw.choice((0.7, 4.0, 20.0, 200.0)))
            for each in offers
        }
        startup_s = {cloud: draw.uniform(60, 600) for cloud in CLOUDS}
        self.market = Market.as_of(
            AT, offers=offers, prices=prices, availability=seen, startup_s=startup_s, priors=priors
        )
        rates = [Observation("job_1", gpu, 1, rate * draw.uniform(0.9, 1.1), 4000, AT) for gpu, rate in GPUS.items()]
        self.book = PerfBook.as_of(AT, rates)

    def demand(self, objective: Objective, hours: float, checkpoint_bytes: int) -> Demand:
        train = TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)
        spec = JobSpec("j", train, objective=objective, checkpoint=CheckpointSpec(max_overhead=0.02), probe=False)
        job = Job("job_1", spec, "a", AT, "queued")
        steps = round(hours * 3600 * GPUS["V100"])
        return Demand(job, steps, 10, checkpoint_bytes=checkpoint_bytes, checkpoint_at=("gcp", "r0"))

    def placement(self, demand: Demand) -> Placement:
        return decide([demand], self.market, self.book, {}, complete=True).placements[0]


def keys(objective: Objective, each: Alternative, earliest_s: float) -> tuple[float, ...]:
    assert each.cost_nano_usd is not None
    assert each.duration_s is not None
    if objective == FASTEST:
        return max(each.duration_s / earliest_s, 1.03), each.cost_nano_usd
    return (each.cost_nano_usd**objective.cost_weight * each.duration_s**objective.time_weight,)


def ordered_by_what_is_shown(objective: Objective, placement: Placement) -> None:
    assert placement.action == "place"
    fit = [each for each in placement.alternatives if each.feasible]
    earliest_s = min(each.duration_s or 0.0 for each in fit)
    values = [keys(objective, each, earliest_s) for each in fit]
    assert fit[0].offer_id == placement.offer_id
    for better, worse in pairwise(values):
        level = worse[0] == pytest.approx(better[0], rel=1e-9)
        assert level or better[0] < worse[0]
        assert not level or better[-1] <= worse[-1] * (1 + 1e-9)
    assert placement.cost_nano_usd == fit[0].cost_nano_usd


@given(
    st.integers(0, 10**6),
    st.sampled_from(OBJECTIVES),
    st.floats(0.2, 300.0),
    st.sampled_from((0, 10**9, 10**11, 4 * 10**12)),
)
def test_offers_are_in_the_order_of_what_is_shown_of_them(
    seed: int, objective: Objective, hours: float, checkpoint_bytes: int
) -> None:
    scene = Scene(seed, 1)
    ordered_by_what_is_shown(objective, scene.placement(scene.demand(objective, hours, checkpoint_bytes)))


@pytest.fixture(scope="module", params=(1, 2, 3))
def large(request: pytest.FixtureRequest) -> Scene:
    """More offers than are looked at one by one."""
    return Scene(request.param, 12)


@pytest.mark.parametrize("deadline_h", [None, 400.0])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: each.name)
@pytest.mark.parametrize("checkpoint_bytes", [10**9, 4 * 10**12])
def test_in_a_large_market_looking_at_some_offers_finds_the_best_of_all(
    large: Scene, objective: Objective, checkpoint_bytes: int, deadline_h: float | None
) -> None:
    demand = large.demand(objective, 100.0, checkpoint_bytes)
    if deadline_h is not None:
        spec = replace(demand.job.spec, deadline_at_ms=AT + round(deadline_h * HOUR))
        demand = replace(demand, job=replace(demand.job, spec=spec))
    placement = large.placement(demand)
    ordered_by_what_is_shown(objective, placement)
    of_all, _ = prospects(demand, large.market, large.book, limits=MoveLimits())
    shown = [each for each in placement.alternatives if each.feasible]
    assert len(of_all) > 4 * len(shown)
    for each, whole in zip(shown[:6], of_all, strict=False):
        assert (each.offer_id, each.cost_nano_usd) == (whole.offer_id, whole.cost_nano_usd)
        assert (each.cost_low_nano_usd, each.cost_high_nano_usd) == (whole.cost_low_nano_usd, whole.cost_high_nano_usd)
        assert each.duration_s == whole.duration_s
