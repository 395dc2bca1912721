"""A trace shows what `decide` compared: the best option of the trace is the decision."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model import CHEAPEST, FASTEST
from orchestrator.policy import Demand, MoveLimits, Running, trace
from tests.unit.policy.conftest import HOUR, DecisionCase

STEPS = 36_000  # 10 h at 1 step/s


def traced(case, demand, running=None):
    return trace(demand, case.market(), case.perf(), running, limits=MoveLimits())


@settings(max_examples=40, deadline=None)
@given(
    prices=st.lists(st.floats(0.2, 4.0), min_size=2, max_size=5),
    shut=st.sets(st.integers(0, 4)),
    hours=st.one_of(st.none(), st.floats(11, 80)),
    objective=st.sampled_from([CHEAPEST, FASTEST]),
)
def test_the_best_option_of_a_trace_is_the_decision(prices, shut, hours, objective):
    case = DecisionCase()
    case.offer("sure", 3.00)
    for number, price in enumerate(prices):
        offer_id = case.offer(f"spot-{number}", price, spot=True, region=f"eu-{number}")
        if number in shut:
            case.happened(offer_id, "refused", 5 + number)
    deadline = None if hours is None else case.now + round(hours * HOUR)
    demand = Demand(case.job(objective=objective, deadline_at_ms=deadline), STEPS)
    placement, found = case.decide(demand), traced(case, demand)
    assert found.options[0].value == pytest.approx(1.0, abs=1e-6)
    # Among equals, the planner prefers what is less trouble.
    assert all(later.value > each.value - 0.01 for each, later in pairwise(found.options))
    if placement.action == "wait":
        assert found.options[0].action == "wait"
        assert found.options[0].cost_nano_usd > 0
    else:  # "start and return" names the offer to which the job returns
        best = found.options[0]
        if best.action == "start and return":
            best = next(each for each in found.options if each.action == "start")
        assert (placement.action, placement.offer_id) == ("place", best.offer_id)


@settings(max_examples=60, deadline=None)
@given(
    prices=st.lists(st.floats(0.2, 4.0), min_size=2, max_size=5),
    shut=st.sets(st.integers(0, 4)),
    here=st.integers(0, 5),
    hours=st.one_of(st.none(), st.floats(5, 80)),
    minutes_here=st.sampled_from([5, 90, 2000]),
    moves=st.integers(0, 4),
    objective=st.sampled_from([CHEAPEST, FASTEST]),
    leaving=st.booleans(),
)
def test_the_first_option_of_a_running_job_is_the_decision(
    prices, shut, here, hours, minutes_here, moves, objective, leaving
):
    case = DecisionCase()
    offers = [case.offer("sure", 3.00)]
    for number, price in enumerate(prices):
        offers.append(case.offer(f"spot-{number}", price, spot=True, region=f"eu-{number}"))
        if number in shut:
            case.happened(offers[-1], "refused", 5 + number)
    deadline = None if hours is None else case.now + round(hours * HOUR)
    demand = Demand(
        case.job(objective=objective, deadline_at_ms=deadline), STEPS, done_steps=60, checkpoint_bytes=10**9
    )
    running = Running(
        offers[here % len(offers)],
        case.now - minutes_here * 60_000,
        migrations_today=moves,
        came_by="probe" if minutes_here == 5 else "first placement",
        leaving=leaving,
    )
    placement, found = case.decide(demand, running), traced(case, demand, running)
    action = {"place": "start"}.get(placement.action, placement.action)
    if placement.action in ("wait", "none"):
        assert found.options == ()
    else:
        assert (found.options[0].action, found.options[0].offer_id) == (action, placement.offer_id)
        assert dict(found.facts)["decision"] == placement.reason
    assert len({each.offer_id for each in found.options}) == len(found.options)


def test_a_running_job_moves_to_the_first_that_pays_and_stays_where_none_does(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    moved, stayed = (traced(case, Demand(case.job(), STEPS), settled(offer_id)) for offer_id in (here, there))
    assert [(each.action, each.value <= 1) for each in moved.options] == [("move", True), ("stay", True)]
    assert [(each.action, each.value <= 1) for each in stayed.options] == [("stay", True), ("move", False)]
    assert dict(moved.facts)["moves"] == "must gain 2 times their cost, and 10% of the cost of staying"


def test_a_trace_names_what_counted(case):
    case.offer("sure", 3.00)
    spot = case.offer("spot", 1.00, spot=True)
    case.happened(spot, "refused", 5)
    facts = dict(traced(case, Demand(case.job(deadline_at_ms=case.now + 40 * HOUR), STEPS)).facts)
    assert facts["offers"] == "1 can be used now, 1 lack capacity"
    assert facts["time left"] == "40.0 h"
    assert ": the fastest on-demand offer may take " in facts["time to spare"]
    assert facts[spot].startswith("expected to be available again in ")


def test_a_deadline_that_has_passed_is_said_in_words(case):
    case.offer("sure", 3.00)
    facts = dict(traced(case, Demand(case.job(deadline_at_ms=case.now - 2 * HOUR), STEPS)).facts)
    assert facts["time left"] == "none: the deadline passed 2.0 h ago"


def test_an_unmeasured_job_is_compared_without_dollars(case):
    case.offer("sure", 3.00)
    found = traced(case, Demand(case.job(rates={}), None))
    assert "not known yet" in found.rule
    assert {(each.cost_nano_usd, each.duration_s) for each in found.options} == {(None, None)}


def test_nothing_is_compared_where_nothing_fits(case):
    case.offer("small", 3.00, gpu="T4")
    assert traced(case, Demand(case.job(resources=case.job().spec.resources), STEPS)).options
    assert traced(DecisionCase(), Demand(case.job(), STEPS)).options == ()


def test_a_running_job_compares_staying_with_moving(case, settled):
    here = case.offer("here", 2.00)
    there = case.offer("there", 1.00)
    found = traced(case, Demand(case.job(), STEPS), settled(here))
    assert {(each.action, each.offer_id) for each in found.options} == {("stay", here), ("move", there)}


def test_under_a_deadline_each_option_has_the_time_of_its_own_offer(case):
    case.offer("a-slow", 3.00, gpu="SIM-S")
    fast, spot = case.offer("fast", 6.00, gpu="SIM-L"), case.offer("spot", 1.00, gpu="SIM-L", spot=True)
    shut = case.offer("shut", 0.50, gpu="SIM-L", spot=True)
    case.happened(shut, "refused", 5)
    rates = {"SIM-S": 1.0, "SIM-L": 4.0}
    found = traced(case, Demand(case.job(rates=rates, deadline_at_ms=case.now + 40 * HOUR), STEPS))
    took_s = {each.offer_id: each.duration_s for each in found.options if each.action in ("spot", "on-demand")}
    assert {fast, spot} <= took_s.keys()
    assert all(took_s[each] < STEPS / 4 * 1.5 for each in (fast, spot))
