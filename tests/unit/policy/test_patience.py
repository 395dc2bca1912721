"""A job waits for a cheap machine that should soon be back, if that saves more than the time is worth."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.market import TYPICAL
from orchestrator.model import FASTEST, Objective
from orchestrator.policy import Demand, MoveLimits
from orchestrator.policy.decide import considered
from orchestrator.policy.explanation.expected import expected
from orchestrator.policy.explanation.explain import why_patient
from orchestrator.policy.ranking.cost import forecast_of
from orchestrator.policy.ranking.eligible import Filter
from orchestrator.policy.ranking.order import rank
from orchestrator.policy.ranking.patience import Wait, weighed
from orchestrator.policy.ranking.pool import Pool
from providers.money import about_usd, usd
from tests.unit.policy.conftest import DecisionCase

STEPS = 360_000  # 100 h at 1 step/s


@pytest.fixture
def shut(case):
    """Two spot offers at $1 and $1.30; the first was lost a minute ago, and usually returns within an hour."""
    cheap = case.offer("cheap", 1.00, spot=True)
    case.offer("other", 1.30, spot=True, region="eu-2")
    for day in range(10):
        begin = 1440.0 * (day + 1)
        case.happened(cheap, "launched", begin)
        case.happened(cheap, "lost", begin - 600)
        case.happened(cheap, "refused", begin - 630)
        case.happened(cheap, "launched", begin - 660)
        case.happened(cheap, "released", begin - 700)
    case.happened(cheap, "launched", 30)
    case.happened(cheap, "lost", 1)
    return cheap


def test_a_job_waits_for_a_much_cheaper_machine_and_says_for_how_long_and_what_that_saves(case, shut):
    placement = case.decide(Demand(case.job(), STEPS, done_steps=100, checkpoint_bytes=10**9))
    assert (placement.action, placement.offer_id) == ("wait", None)
    assert placement.reason.startswith(f"waiting for {shut}; it should be available again in about ")
    assert "min and saves $" in placement.reason
    assert placement.again_at_ms == case.now + 14 * 60_000  # when the back-off ends


def test_what_waiting_saves_is_relative_to_running_elsewhere_until_the_machine_is_back(case, shut):
    placement = case.decide(Demand(case.job(), STEPS))
    open_offer = placement.alternatives[0]
    assert 0 < placement.saving_nano_usd < open_offer.cost_nano_usd - placement.cost_nano_usd
    more = open_offer.cost_nano_usd - placement.cost_nano_usd
    assert re.fullmatch(r"\$(\S+) \(\d+%\) more to finish", open_offer.reason)[1] == about_usd(more)[1:]


@pytest.mark.parametrize("budget", [None, usd(20)])
def test_a_plan_that_waits_says_why_on_demand_is_not_bought_meanwhile(case, shut, budget):
    case.offer("sure", 3.00, region="eu-2")
    placement = case.decide(Demand(case.job(budget_nano_usd=budget), STEPS))
    assert placement.action == "wait"
    why = r"would cost \$\S+ over the budget" if budget else r"\$\S+ \(\d+%\) more to finish"
    assert re.fullmatch(why, placement.baseline.reason)


def test_a_job_does_not_wait_for_one_percent(case, shut):
    case.price(shut, 1.29)
    case.offer("sure", 1.30, region="eu-3")
    assert case.decide(Demand(case.job(), STEPS)).action == "place"


def test_a_short_job_does_not_wait_for_longer_than_it_would_run(case, shut):
    short = Demand(case.job(), 1800)
    assert case.decide(short).action == "place"


def test_what_a_job_has_done_counts_towards_how_long_it_may_wait(case, shut):
    """Half an hour of 100 is left, and the machine should be back in a little more than that."""
    nearly_done = Demand(case.job(), STEPS, done_steps=STEPS - 1800, checkpoint_bytes=10**9)
    assert case.decide(nearly_done).action == "wait"
    assert case.decide(Demand(case.job("job_2"), 1800)).action == "place"


def test_going_where_the_checkpoint_is_and_after_a_loss_elsewhere_pays_for_its_way_there(case):
    """The way to the open machine costs nothing, but the way back does."""
    cheap = case.offer("cheap", 1.00, spot=True, region="us-central1", provider="gcp")
    case.offer("other", 1.06, spot=True, region="asia-northeast1", provider="gcp")
    for minutes, kind in ((600, "launched"), (1, "lost")):
        case.happened(cheap, kind, minutes)
    lies_at = ("gcp", "asia-northeast1", "asia-northeast1a")
    demand = Demand(case.job(), STEPS, done_steps=1000, checkpoint_bytes=50 * 10**9, checkpoint_at=lies_at)
    market, perf = case.market(), case.perf()
    filtered, forecast = considered(demand, Filter(market, MoveLimits()), market, perf, None, None)
    found = {each.action: each for each in weighed(demand, forecast, rank(demand, forecast, filtered), filtered)}
    assert TYPICAL.rate(lies_at, ("gcp", "us-central1", "")) * 50 > usd(1)
    assert found["start and return"].cost_nano_usd > found["wait"].cost_nano_usd


def test_waits_after_later_losses_do_not_count_against_waiting_now(case):
    """Where the job is lost every few hours, it may wait half of its time altogether: but so it may elsewhere."""
    cheap = case.offer("cheap", 1.00, spot=True, region="us-central1", provider="gcp")
    case.offer("other", 1.05, spot=True, region="us-east1", provider="gcp")
    for minutes, kind in ((150, "launched"), (30, "lost"), (0, "refused")):
        case.happened(cheap, kind, minutes)
    lies_at = ("gcp", "us-central1", "us-central1a")
    demand = Demand(
        case.job(), 36 * 3600, 3600, checkpoint_bytes=7 * 10**9, checkpoint_s=60.0, checkpoint_at=lies_at, idle_s=1800.0
    )
    waits = case.decide(demand)
    assert waits.action == "wait"
    assert waits.finish_at_ms - case.now > 1.5 * 35 * 3_600_000, "they are in the finish that is shown"


@pytest.mark.parametrize("objective", [FASTEST, Objective(0.2, 0.8)])
def test_a_job_to_which_time_matters_does_not_wait(case, shut, objective):
    assert case.decide(Demand(case.job(objective=objective), STEPS)).action == "place"


def test_a_job_that_runs_does_not_stop_in_order_to_wait(case, shut, settled):
    other = case.offers[1].id
    assert case.decide(Demand(case.job(), STEPS), settled(other)).action == "stay"


def test_a_job_does_not_wait_into_its_deadline(case, shut):
    case.offer("sure", 1.30, region="eu-3")
    hour = 3_600_000
    relaxed, tight = (
        case.job(name, deadline_at_ms=case.now + round(hours * hour))
        for name, hours in (("job_1", 140), ("job_2", 105))
    )
    assert case.decide(Demand(relaxed, STEPS)).action == "wait"
    assert case.decide(Demand(tight, STEPS)).action == "place"


def test_a_job_with_a_deadline_waits_only_if_on_demand_could_still_make_it(case, shut):
    job = case.job(deadline_at_ms=case.now + 140 * 3_600_000)
    assert case.decide(Demand(job, STEPS)).action != "wait"  # there is no on-demand offer to fall back on


def test_a_job_does_not_wait_for_what_its_budget_cannot_pay(case, shut):
    job = case.job(budget_nano_usd=usd(200))
    assert case.decide(Demand(job, STEPS)).action == "wait"
    almost_spent = Demand(job, STEPS, done_steps=1, spent_nano_usd=usd(199))
    assert case.decide(almost_spent).offer_id is None


def test_a_job_of_unknown_length_starts_where_it_can(case, shut):
    assert case.decide(replace(Demand(case.job(), STEPS), total_steps=None)).action == "place"


def test_a_machine_that_never_returned_is_not_awaited(case):
    cheap = case.offer("cheap", 1.00, spot=True)
    other = case.offer("other", 1.30, spot=True, region="eu-2")
    for minutes in range(5, 10 * 1440, 230):
        case.happened(cheap, "refused", minutes)
    placement = case.decide(Demand(case.job(), STEPS))
    assert (placement.action, placement.offer_id) == ("place", other)


@pytest.mark.parametrize(
    ("sure_usd", "less_than_h"),
    [(3.00, 11.0), (1.04, 5.0)],
    ids=["never for longer than the job takes", "for a small saving, the hours waited already count"],
)
def test_waiting_ends_however_short_the_outages_were_before(case, sure_usd, less_than_h):
    """Each next quarter of an hour seems worth waiting."""
    case.offer("sure", sure_usd)
    spot = case.offer("spot", 1.00, spot=True)
    for hours in range(3000, 100, -20):
        case.happened(spot, "refused", 60 * hours)
        case.happened(spot, "launched", 60 * hours - 20)
        case.happened(spot, "released", 60 * hours - 30)
    demand = Demand(case.job(), 36_000)  # 10 h
    waited_h = 0.0
    case.happened(spot, "refused")
    while case.decide(demand).action == "wait":
        waited_h += 0.25
        assert waited_h < less_than_h
        case.now += 15 * 60_000
        case.happened(spot, "refused")
        case.prices = [replace(each, observed_at_ms=case.now) for each in case.prices]
    assert waited_h > 0


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.floats(1.5, 4.0), st.floats(2.0, 20.0))
def test_waiting_for_one_offer_after_the_other_ends_when_the_job_could_have_been_done(pools, sure_usd, hours):
    """Whichever offer is awaited was there just now: each wait is short, their sum is not."""
    case = DecisionCase()
    case.offer("sure", sure_usd)
    spots = [case.offer(f"spot{number}", 1.00, spot=True, region=f"eu-{number}") for number in range(pools)]
    for spot in spots:
        for ago in range(3000, 100, -20):
            case.happened(spot, "refused", 60 * ago)
            case.happened(spot, "launched", 60 * ago - 20)
            case.happened(spot, "released", 60 * ago - 30)
        case.happened(spot, "refused", 20)
    job, waited_h = case.job(), 0.0
    while True:
        back = spots[round(4 * waited_h) % pools]  # others got a machine there, and now there is none again
        case.happened(back, "launched", 2)
        case.happened(back, "released", 1)
        for spot in spots:
            case.happened(spot, "refused")
        case.prices = [replace(each, observed_at_ms=case.now) for each in case.prices]
        if case.decide(Demand(job, round(3600 * hours), idle_s=3600 * waited_h)).action != "wait":
            break
        waited_h += 0.25
        case.now += 15 * 60_000
        assert waited_h <= hours + 0.25


def test_a_job_to_which_only_money_counts_does_not_wait_in_order_to_pay_more(case):
    slow = case.offer("slow", 1.00, gpu="SIM-S")
    fast = case.offer("fast", 10.20, spot=True, region="eu-2")
    case.happened(fast, "refused", 5)
    assert case.decide(Demand(case.job(rates={"SIM-S": 0.1, "SIM-M": 1.0}), STEPS)).offer_id == slow


def test_the_finish_of_a_job_that_waits_includes_the_wait_and_has_an_interval(case, shut):
    demand = Demand(case.job(), STEPS)
    waits = case.decide(demand)
    case.happened(shut, "launched", 0)
    case.happened(shut, "released", 0)
    begins = case.decide(demand)
    assert begins.offer_id == waits.awaited.offer_id == shut
    (began,) = (each for each in begins.alternatives if each.offer_id == shut)
    awaited = waits.awaited
    assert awaited.duration_s > began.duration_s + 20 * 60  # nearly 15 min of back-off, then what is left of the outage
    assert awaited.duration_low_s < awaited.duration_s < awaited.duration_high_s
    assert awaited.cost_low_nano_usd < awaited.cost_nano_usd < awaited.cost_high_nano_usd
    assert waits.cost_nano_usd == awaited.cost_nano_usd
    assert waits.finish_at_ms == case.now + round(awaited.duration_s * 1000)
    forecast = expected(waits, case.now)
    assert (forecast.duration_low_s, forecast.duration_high_s) == (awaited.duration_low_s, awaited.duration_high_s)


def test_a_forecast_beyond_all_measure_is_none_and_says_why(case):
    case.offer("only", 1.00)
    forecast = expected(case.decide(Demand(case.job(rates={"SIM-M": 1e-9}), STEPS)), case.now)
    assert isinstance(forecast, str)
    assert "no machine is fast enough" in forecast


def test_a_saving_beyond_all_measure_is_not_promised(case):
    """It would fit no store (seed 26415 of the crash fuzz)."""
    case.offer("only", 1.00, spot=True)
    case.offer("only", 3.00)
    placement = case.decide(Demand(case.job(rates={"SIM-M": 1e-9}), STEPS))
    assert placement.baseline is not None
    assert placement.baseline.cost_nano_usd > 2**63
    assert placement.saving_nano_usd == 0


def test_the_finish_of_a_job_that_waits_before_a_deadline_is_before_it(case, shut):
    case.offer("sure", 1.60, region="eu-3")
    deadline_ms = case.now + 140 * 3_600_000
    placement = case.decide(Demand(case.job(deadline_at_ms=deadline_ms), STEPS))
    assert placement.action == "wait"
    assert placement.finish_at_ms < deadline_ms
    assert placement.awaited.duration_high_s <= 140 * 3600


@pytest.mark.parametrize(("hours", "budget", "waits"), [(250, 130, True), (60, 130, True), (250, 50, False)])
def test_a_job_that_no_open_offer_finishes_in_time_waits_for_one_that_is_soon_back(case, hours, budget, waits):
    """100 hours of work. The only open offer takes 2,500 hours; the budget does not pay for on-demand. It went there,
    said that the deadline could not be met, and came back a quarter of an hour later."""
    fast = case.offer("fast", 1.00, spot=True)
    slow = case.offer("slow", 0.01, gpu="SIM-S", spot=True)
    case.offer("sure", 3.00)
    case.happened(fast, "launched", 600)
    case.happened(fast, "lost", 5)
    limits = {"deadline_at_ms": case.now + hours * 3_600_000, "budget_nano_usd": usd(budget)}
    job = case.job(rates={"SIM-M": 1.0, "SIM-S": 0.04}, **limits)
    placed = case.decide(Demand(job, STEPS))
    if not waits:
        assert (placed.action, placed.offer_id) == ("place", slow)
        return
    assert (placed.action, placed.awaited.offer_id) == ("wait", fast)
    assert "finishes" in placed.reason
    assert "earlier" in placed.reason
    assert ("to spare before" in placed.reason, "after the deadline" in placed.reason) == (hours == 250, hours == 60)
    assert (placed.chance is None) == (hours == 250)
    assert placed.again_at_ms > case.now


def test_a_wait_for_a_faster_machine_that_costs_more_says_so(case, shut):
    wait = Wait(case.market().row(shut), 600.0, usd(9), 3600.0, None, -usd(0.13), sooner_s=7200.0)
    demand = Demand(case.job(), STEPS)
    forecast = forecast_of(demand, Pool(case.market(), np.array([0, 1])), case.perf(), None)
    reason = why_patient(demand, case.market(), forecast, wait)
    assert reason.endswith("available again in about 10 min and finishes 2.0 h earlier for $0.1300 more")
