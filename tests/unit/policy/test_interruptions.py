"""What a plan shows of a machine that may be lost: restarts, waiting for capacity, going elsewhere, a deadline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, HazardPrior, Market
from orchestrator.model import FASTEST, Alternative
from orchestrator.policy import Demand, decide
from orchestrator.policy.ranking.interruptions import Moments, quantile
from providers.money import usd
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase

STEPS = 36_000  # an hour at 10 steps per second


def shown(
    case: DecisionCase,
    *,
    lost_every_h: float = 8.0,
    outages_h: tuple[float, ...] = (),
    steps: int = 40 * STEPS,
    checkpoint_bytes: int = 0,
    **spec: object,
) -> tuple[Alternative, ...]:
    """The alternatives of a new job. `outages_h` ended before, at the first offer."""
    job = case.job(rates={"SIM-M": 10.0, "SIM-L": 12.0}, **spec)
    first = case.offers[0]
    seen, at = [], NOW - 25 * 24 * HOUR
    for hours in outages_h:
        again = at + round(hours * HOUR)
        seen += [AvailabilityPoint(first.id, when, kind) for when, kind in ((at, "refused"), (again, "launched"))]
        seen.append(AvailabilityPoint(first.id, again, "released"))
        at = again + 24 * HOUR
    market = Market.as_of(
        case.now,
        offers=case.offers,
        prices=case.prices,
        availability=seen,
        startup_s={offer.provider: 300.0 for offer in case.offers},
        priors={(each.provider, each.region, each.instance_type): HazardPrior(lost_every_h) for each in case.offers},
    )
    demand = Demand(job, steps, checkpoint_bytes=checkpoint_bytes)
    return decide([demand], market, case.perf(), {}, complete=True).placements[0].alternatives


def test_waiting_for_capacity_after_losses_is_in_the_finish(case: DecisionCase) -> None:
    case.offer("only", 1.0, spot=True)
    (calm,), (slow,) = shown(case, outages_h=(0.5,) * 8), shown(case, outages_h=(4.0,) * 8)
    losses = 40 / 8
    assert slow.duration_s > 40 * 3600 + losses * 1.5 * 3600
    assert slow.duration_s > calm.duration_s + losses * 1.0 * 3600
    assert slow.duration_high_s - slow.duration_s > calm.duration_high_s - calm.duration_s
    assert slow.cost_nano_usd == pytest.approx(calm.cost_nano_usd, rel=1e-6)  # nothing is billed meanwhile


def test_no_time_passes_where_an_equal_offer_is_open(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    alone = shown(case)[0]
    case.offer("same", 1.0001, spot=True, region="us-1")
    both = shown(case)[0]
    assert both.offer_id == alone.offer_id
    assert both.duration_s < alone.duration_s - 3 * 3600
    assert both.duration_s == pytest.approx(40 * 3600 + 300 + 5.2 * (300 + 1800), rel=0.01)


def test_the_way_to_another_region_after_a_loss_is_in_the_cost(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True, provider="aws")
    case.offer("same", 1.01, spot=True, provider="aws", region="us-1")
    light, heavy = (shown(case, checkpoint_bytes=size, objective=FASTEST)[0] for size in (0, 5 * 10**9))
    assert heavy.offer_id == light.offer_id
    assert heavy.cost_nano_usd > light.cost_nano_usd + usd(0.1)
    assert heavy.cost_high_nano_usd - heavy.cost_nano_usd > light.cost_high_nano_usd - light.cost_nano_usd


def test_who_is_in_a_hurry_never_waits(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("dear", 9.0)
    patient = next(each for each in shown(case) if "/it/" in each.offer_id)
    hurried = next(each for each in shown(case, objective=FASTEST) if "/it/" in each.offer_id)
    assert hurried.duration_s < patient.duration_s - 3600
    assert hurried.cost_nano_usd > patient.cost_nano_usd


@pytest.mark.parametrize("faster", [10.0, 10.2])
def test_who_is_in_a_hurry_goes_to_the_cheapest_of_the_equally_fast_after_a_loss(
    case: DecisionCase, faster: float
) -> None:
    """What a plan showed for `fastest` counted the first of them in the list, or the one that was a little faster."""
    case.offer("it", 1.0, spot=True)
    case.offer("cheap", 1.2)
    few = next(each for each in shown(case, objective=FASTEST) if "/it/" in each.offer_id)
    case.offer("a-dear", 9.0)
    case.offer("b-dear", 9.0, gpu="SIM-S")
    job = case.job(rates={"SIM-M": 10.0, "SIM-S": faster}, objective=FASTEST)
    priors = {(each.provider, each.region, each.instance_type): HazardPrior(8.0) for each in case.offers}
    startup_s = {case.offers[0].provider: 300.0}
    market = Market.as_of(case.now, offers=case.offers, prices=case.prices, startup_s=startup_s, priors=priors)
    found = decide([Demand(job, 40 * STEPS)], market, case.perf(), {}, complete=True).placements[0].alternatives
    many = next(each for each in found if "/it/" in each.offer_id)
    assert many.cost_nano_usd == pytest.approx(few.cost_nano_usd, rel=1e-3)


def test_a_deadline_that_on_demand_can_meet_is_met_at_the_price_of_on_demand(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("sure", 3.0)
    free = shown(case, lost_every_h=4.0, outages_h=(4.0,) * 8)[0]
    due = shown(case, lost_every_h=4.0, outages_h=(4.0,) * 8, deadline_at_ms=NOW + 60 * HOUR)[0]
    assert free.duration_s > 60 * 3600
    assert due.offer_id == free.offer_id
    assert due.duration_s < due.duration_high_s <= 60 * 3600
    assert due.cost_nano_usd > free.cost_nano_usd
    assert due.cost_high_nano_usd < usd(3.0 * 47)


@pytest.mark.parametrize("lost_every_h", [50.0, 20.0, 8.0])
def test_a_job_that_may_well_lose_no_machine_may_cost_no_more_than_its_work(
    case: DecisionCase, lost_every_h: float
) -> None:
    """40 hours of work at $1: without a loss, $40 and the start."""
    case.offer("only", 1.0, spot=True)
    (found,) = shown(case, lost_every_h=lost_every_h)
    assert found.cost_low_nano_usd < usd(40.1) < found.cost_nano_usd
    assert found.duration_low_s < 40.1 * 3600 < found.duration_s


def test_after_a_loss_no_job_goes_where_its_budget_does_not_pay(case: DecisionCase) -> None:
    """The only other offer costs 40 times as much: with this budget, the job waits for its own to come back."""
    it = case.offer("it", 1.0, spot=True)
    case.offer("dear", 40.0)
    plans = (shown(case, objective=FASTEST, budget_nano_usd=usd(each)) for each in (60, 10**6))
    poor, rich = (next(each for each in plan if each.offer_id == it) for plan in plans)
    assert poor.cost_nano_usd < usd(60) < rich.cost_nano_usd
    assert poor.duration_s > rich.duration_s


def test_what_is_shown_spends_no_more_than_the_budget(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("dear", 9.0, region="us-1", provider="aws")
    free = shown(case, lost_every_h=4.0)[0]
    budget = free.cost_high_nano_usd - usd(1)
    bound = shown(case, lost_every_h=4.0, budget_nano_usd=budget)[0]
    assert bound.cost_high_nano_usd <= budget
    assert bound.cost_nano_usd == free.cost_nano_usd


rates = st.floats(0.5, 200.0)
lengths = st.lists(st.floats(0.3, 8.0), max_size=6).map(tuple)  # longer ones are not taken for one outage


@given(rates, rates, lengths)
def test_more_losses_never_bring_the_finish_forward(one: float, other: float, outages_h: tuple[float, ...]) -> None:
    case = DecisionCase()
    case.offer("only", 1.0, spot=True)
    often, seldom = sorted((one, other))
    (sooner,) = shown(case, lost_every_h=seldom, outages_h=outages_h)
    case.observations.clear()
    (later,) = shown(case, lost_every_h=often, outages_h=outages_h)
    assert later.duration_s >= sooner.duration_s - 1e-6
    assert later.duration_high_s >= sooner.duration_high_s - 1e-6
    assert later.cost_nano_usd >= sooner.cost_nano_usd


@given(rates, lengths.filter(bool), st.floats(1.0, 4.0))
def test_longer_outages_never_bring_the_finish_forward(
    lost_every_h: float, outages_h: tuple[float, ...], longer: float
) -> None:
    case = DecisionCase()
    case.offer("only", 1.0, spot=True)
    stretched = tuple(min(hours * longer, 8.0) for hours in outages_h)
    (sooner,) = shown(case, lost_every_h=lost_every_h, outages_h=outages_h)
    case.observations.clear()
    (later,) = shown(case, lost_every_h=lost_every_h, outages_h=stretched)
    assert later.duration_s >= sooner.duration_s - 1e-6
    assert later.duration_high_s >= sooner.duration_high_s - 1e-6


@given(
    rates,
    lengths,
    st.lists(st.tuples(st.floats(0.3, 5.0), st.booleans(), st.booleans()), min_size=1, max_size=4),
    st.none() | st.floats(30.0, 200.0),
    st.none() | st.floats(5.0, 300.0),
    st.sampled_from((0, 10**9, 10**11)),
)
def test_an_interval_contains_what_is_expected_and_no_finish_is_sooner_than_the_training(
    lost_every_h: float,
    outages_h: tuple[float, ...],
    offers: list[tuple[float, bool, bool]],
    deadline_h: float | None,
    budget: float | None,
    checkpoint_bytes: int,
) -> None:
    case = DecisionCase()
    for number, (dollars, spot, far) in enumerate(offers):
        case.offer(f"m{number}", dollars, spot=spot, region="us-1" if far else "eu-1")
    found = shown(
        case,
        lost_every_h=lost_every_h,
        outages_h=outages_h,
        checkpoint_bytes=checkpoint_bytes,
        deadline_at_ms=None if deadline_h is None else NOW + round(deadline_h * HOUR),
        budget_nano_usd=None if budget is None else usd(budget),
    )
    for each in found:
        assert each.cost_low_nano_usd <= each.cost_nano_usd <= each.cost_high_nano_usd
        assert 0.8 * 40 * 3600 < each.duration_low_s <= each.duration_s <= each.duration_high_s


@given(st.floats(0.01, 1e6), st.floats(0.0, 1e3))
def test_percentiles_of_a_sum_are_ordered_and_not_negative(mean: float, spread: float) -> None:
    moments = Moments(np.array([mean]), np.array([(spread * mean) ** 2]))
    low, middle, high = (float(quantile(moments, z)[0]) for z in (-1.645, 0.0, 1.645))
    assert 0 <= low <= middle <= high
    assert middle <= mean * (1 + 1e-9)


def test_a_certain_sum_has_no_spread() -> None:
    assert quantile(Moments(np.array([5.0]), np.zeros(1)), 1.645) == pytest.approx([5.0])
    assert quantile(Moments(np.zeros(1), np.zeros(1)), 1.645) == pytest.approx([0.0])


def test_figures_do_not_depend_on_what_is_listed(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("other", 1.3, spot=True)
    demand = Demand(case.job(rates={"SIM-M": 10.0}), STEPS)
    brief, complete = (
        decide([demand], case.market(), case.perf(), {}, complete=complete).placements[0].alternatives
        for complete in (False, True)
    )
    assert [replace(each, reason="") for each in brief] == [replace(each, reason="") for each in complete]
