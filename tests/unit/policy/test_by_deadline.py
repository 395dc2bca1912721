"""With a deadline, what to do now follows from the value of the time to spare: wait, run on spot, or buy."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.market import Market
from orchestrator.model import FASTEST
from orchestrator.policy import Demand, decide
from orchestrator.policy.demand import MoveLimits
from orchestrator.policy.ranking import by_deadline
from orchestrator.policy.ranking.by_deadline import TICK_H, choices, similar, wait_of
from orchestrator.policy.ranking.cost import forecast_of
from orchestrator.policy.ranking.eligible import Filter
from orchestrator.policy.ranking.order import rank
from orchestrator.policy.slack.known import KnownSpells, PoolRates
from orchestrator.policy.slack.planner import Planner
from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.trace import trace
from providers.money import about_usd, usd

STEPS = 36_000  # 10 h at 1 step/s
HOUR = 3_600_000
LIMITS = MoveLimits()


@pytest.fixture
def shut(case):
    """On-demand at $3, and spot at $1 that was lost ten minutes ago."""
    case.offer("sure", 3.00)
    spot = case.offer("spot", 1.00, spot=True)
    case.happened(spot, "launched", 600)
    case.happened(spot, "lost", 10)
    return spot


def due(case, hours, name="job_1", **spec):
    return case.job(name, deadline_at_ms=case.now + round(hours * HOUR), **spec)


def choices_of(case, limits):
    return found(case, Demand(due(case, 60), STEPS), limits)[1]


def found(case, demand, limits=LIMITS):
    market, perf = case.market(), case.perf()
    assert isinstance(market, Market)
    filtered = Filter(market, MoveLimits())(demand.job.spec, None)
    forecast = forecast_of(demand, filtered.pool, perf, None)
    ranking = rank(demand, forecast, filtered)
    return market, choices(demand, forecast, ranking, filtered, limits), forecast, filtered


def test_with_time_to_spare_a_job_waits_for_spot_and_says_what_that_saves_and_leaves(case, shut):
    placement = case.decide(Demand(due(case, 40), STEPS))
    assert placement.action == "wait"
    assert placement.reason.startswith(f"waiting for {shut}; it should be available again in about ")
    assert placement.reason.endswith("to spare before the deadline")
    assert placement.again_at_ms == case.now + 5 * 60_000
    assert usd(10) < placement.cost_nano_usd < usd(33)


def test_while_a_job_waits_the_reason_against_each_other_offer_agrees_with_the_costs_shown(case, shut):
    case.offer("other", 1.05, spot=True, provider="aws", region="us-east-1")
    here = Demand(
        due(case, 40), STEPS, done_steps=10, checkpoint_bytes=400 * 10**9, checkpoint_at=("local", "eu-1", "eu-1a")
    )
    placement = case.decide(here)
    assert placement.action == "wait"
    for each in [each for each in placement.alternatives if each.feasible] + [placement.baseline]:
        more = about_usd(each.cost_nano_usd - placement.cost_nano_usd)
        assert re.fullmatch(rf"{re.escape(more)} \(\d+%\) more to finish", each.reason)


def test_without_time_to_spare_it_buys(case, shut):
    placement = case.decide(Demand(due(case, 11), STEPS))
    assert (placement.action, placement.offer_id) == ("place", case.offers[0].id)


def test_waiting_is_worth_less_the_less_time_there_is(case, shut):
    costs = []
    for hours in (60, 40, 25, 18, 14):
        _, choice, _, _ = found(case, Demand(due(case, hours, f"job_{hours}"), STEPS))
        costs.append(min(each.cost_nano_usd for each in choice))
    assert all(less < 1.02 * more for less, more in pairwise(costs))
    assert costs[0] < 0.7 * costs[-1]


def test_a_machine_that_is_bought_is_paid_for_as_long_as_the_job_has_to_stay_there(case, shut):
    held, free = (
        min(each.cost_nano_usd for each in choices_of(case, limits) if each.action == "on_demand")
        for limits in (MoveLimits(min_dwell_s=7200.0), MoveLimits(min_dwell_s=0.0))
    )
    assert usd(2.5) < held - free < usd(4)  # for less than 2 h, $2 an hour more than spot


def test_open_spot_is_taken_before_on_demand(case):
    case.offer("sure", 3.00)
    spot = case.offer("spot", 1.00, spot=True)
    assert case.decide(Demand(due(case, 40), STEPS)).offer_id == spot


def test_the_planner_has_no_say_without_a_deadline_or_where_time_counts(case, shut):
    for job in (case.job("job_1"), due(case, 40, "job_2", objective=FASTEST)):
        assert found(case, Demand(job, STEPS))[1] == []


def test_a_job_that_runs_is_not_stopped_in_order_to_wait(case, shut, settled):
    placement = case.decide(Demand(due(case, 40), STEPS, done_steps=100), settled(case.offers[0].id))
    assert placement.action == "stay"


def test_egress_counts_where_the_checkpoint_is(case, shut):
    """Back where its checkpoint is, the job needs no egress: waiting is worth more than open spot at the same price."""
    other = case.offer("other", 1.05, spot=True, provider="aws", region="us-east-1")
    here = Demand(
        due(case, 40), STEPS, done_steps=10, checkpoint_bytes=400 * 10**9, checkpoint_at=("local", "eu-1", "eu-1a")
    )
    placement = case.decide(here)
    assert placement.action == "wait"
    assert case.decide(Demand(due(case, 40, "job_2"), STEPS)).offer_id == other


def test_what_a_job_waits_for_is_the_best_of_its_choices(case, shut):
    market, choice, forecast, filtered = found(case, Demand(due(case, 40), STEPS))
    awaited = wait_of(choice, forecast, filtered)
    assert awaited is not None
    assert market.ids[awaited.row] == shut
    assert awaited.cost_nano_usd == min(each.cost_nano_usd for each in choice)
    assert awaited.saving_nano_usd > 0


@settings(max_examples=15, deadline=None)
@given(hours=st.floats(11, 60), price=st.floats(0.2, 2.9))
def test_a_choice_depends_on_nothing_that_was_asked_before(hours, price):
    from tests.unit.policy.conftest import DecisionCase  # a fixture would keep its state between examples

    case = DecisionCase()
    case.offer("sure", 3.00)
    case.happened(case.offer("spot", price, spot=True), "refused", 20)
    demand = Demand(due(case, hours), STEPS)
    by_deadline.solved.cache_clear()
    first = found(case, demand)[1]
    found(case, Demand(due(case, hours * 1.01, "job_2"), STEPS))
    assert found(case, demand)[1] == first


@pytest.mark.parametrize("work_h", [130.0, 170.0])
@pytest.mark.parametrize("price", [0.9 * 1.05 ** (part / 20) for part in range(20)])
def test_a_price_that_is_hardly_lower_elsewhere_pays_neither_for_buying_nor_for_the_way_there(price, work_h):
    """A job with days to spare lost its machine in pool 0. Pool 1 costs 0.5 % less ($0.80 for all of the work), but
    loses machines more often; the way there costs $3.56, but nothing from on-demand, in pool 2."""
    terms = Terms(
        restart_h=0.1,
        tick_h=TICK_H,
        on_demand_usd=(price, price, 3.06),
        egress_usd=np.array([[0, 3.56, 0], [3.56, 0, 0], [0, 0, 0]]),
        speed=(1.0, 1.0, 1.0),
        only_spot=frozenset({0, 1}),
        only_on_demand=frozenset({2}),
        kept_h=1.1,
    )
    rates = [PoolRates(0.4, 0.05, False), PoolRates(0.4, 0.16), PoolRates(1.0, 1.0)]
    now = Situation(0.0, round(1.75 * work_h / TICK_H), work_h, None, 0.0, 0, (price, 0.995 * price, 3.06))
    assert Planner(terms, KnownSpells(rates, TICK_H), similar).options(now)[0].action == "wait"


@pytest.mark.parametrize(("steps", "done"), [(STEPS, STEPS), (STEPS, STEPS + 5), (0, 0)])
def test_a_job_that_has_done_all_its_steps_can_be_decided(case, shut, steps, done):
    demand = Demand(due(case, 40), steps, done_steps=done, checkpoint_bytes=10**9)
    assert case.decide(demand).action in ("place", "wait")


def test_a_job_that_waits_looks_again_before_it_is_too_late_to_buy(case):
    """However long the back-off lasts."""
    case.offer("sure", 3.00)
    spot = case.offer("spot", 1.00, spot=True)
    for minutes in (700, 600, 500, 400, 200, 1):
        case.happened(spot, "refused", minutes)
    placements = [case.decide(Demand(due(case, hours, f"job_{hours}"), STEPS)) for hours in (13, 14, 16)]
    waits = [(hours, each) for hours, each in zip((13, 14, 16), placements, strict=True) if each.action == "wait"]
    assert waits
    for hours, each in waits:
        assert each.again_at_ms < case.now + (hours - 10) * HOUR


def test_on_demand_that_its_budget_cannot_pay_is_no_reason_to_wait(case):
    case.offer("sure", 40.00, gpu="SIM-L")
    case.offer("open", 2.00, spot=True, region="eu-2")
    case.happened(case.offer("spot", 1.00, spot=True), "refused", 5)
    job = due(case, 13, budget_nano_usd=usd(35), rates={"SIM-M": 1.0, "SIM-L": 4.0})
    assert case.decide(Demand(job, STEPS)).action == "place"


def test_the_time_to_bring_the_checkpoint_to_on_demand_counts(case):
    """2 TB take 4.4 h to another cloud: with 14 h left for 9 h of work, a spot machine is not safe."""
    spot = case.offer("spot", 1.00, spot=True, provider="aws", region="us-east-1")
    case.offer("sure", 3.00, provider="gcp", region="us-central1")
    begun = {"checkpoint_bytes": 2 * 10**12, "checkpoint_at": ("aws", "us-east-1", "us-east-1a"), "done_steps": 3600}
    tight, relaxed = (case.decide(Demand(due(case, hours, f"job_{hours}"), STEPS, **begun)) for hours in (13.5, 20))
    assert (relaxed.offer_id, relaxed.chance) == (spot, None)
    assert tight.chance is not None or tight.offer_id != spot


def test_a_job_that_is_both_too_late_and_too_expensive_lacks_money(case):
    case.offer("sure", 3.00)
    placement = case.decide(Demand(due(case, 5, budget_nano_usd=usd(2)), STEPS))
    assert (placement.action, placement.lacks_money) == ("wait", True)
    assert "budget" in placement.reason


def test_a_decision_does_not_depend_on_which_jobs_are_decided_with_it(case, shut):
    """Similar jobs share value tables, of which only a few are kept. The order of the jobs must not matter."""
    demands = [Demand(due(case, hours, f"job_{hours}"), STEPS) for hours in (60, 59, 40, 25, 18, 14)]
    market, perf = case.market(), case.perf()
    together = decide(demands, market, perf, {}).placements
    assert [placement.job_id for placement in together] == sorted(demand.job.id for demand in demands)
    for demand, placement in zip(sorted(demands, key=lambda each: each.job.id), together, strict=True):
        by_deadline.solved.cache_clear()
        assert decide([demand], market, perf, {}).placements == (placement,)


@pytest.mark.parametrize(("gigabytes", "goes_far"), [(10, True), (4000, False)])
def test_a_spot_offer_from_where_the_checkpoint_could_not_return_in_time_is_not_taken(case, gigabytes, goes_far):
    """On-demand is in another region: after a loss, the checkpoint must get there first, at a gigabit per second."""
    sure = case.offer("sure", 3.00, provider="aws", region="us-east-1")
    far = case.offer("far", 0.30, spot=True, provider="gcp", region="us-central1")
    placement = case.decide(Demand(due(case, 16), STEPS, checkpoint_bytes=gigabytes * 10**9))
    assert placement.offer_id == (far if goes_far else sure)


@pytest.mark.parametrize(("budget", "goes_far"), [(60, True), (33, False)])
def test_a_budget_pays_for_the_way_back_to_on_demand_before_a_job_with_a_deadline_goes_far(case, budget, goes_far):
    sure = case.offer("sure", 3.00, provider="aws", region="us-east-1")
    far = case.offer("far", 0.30, spot=True, provider="aws", region="eu-west-1")
    job = due(case, 16, budget_nano_usd=usd(budget))
    placement = case.decide(Demand(job, STEPS, checkpoint_bytes=200 * 10**9))
    assert placement.offer_id == (far if goes_far else sure)


def test_a_job_that_is_late_in_any_case_does_not_pay_eight_times_as_much_for_two_percent(case):
    case.offer("dear", 24.00, gpu="SIM-L")
    cheap = case.offer("cheap", 3.00)
    demand = Demand(due(case, 1, rates={"SIM-M": 1.0, "SIM-L": 1.02}), STEPS)
    found, options = case.decide(demand), trace(demand, case.market(), case.perf(), None, limits=MoveLimits()).options
    assert found.offer_id == cheap
    assert "the lowest cost within 3% of the earliest finish" in found.reason
    assert [each.value for each in options] == [1.0, 1.0]
