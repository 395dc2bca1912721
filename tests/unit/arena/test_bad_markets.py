"""Live decisions in bad markets: each has a named outcome."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.arena.replay.capacity import HOUR_MS
from orchestrator.arena.replay.state import State
from orchestrator.model import FASTEST
from tests.unit.arena.test_replay import NANO, ON_DEMAND, OTHER, SPOT, T0, Hourly, a_job, played, record

FOREVER_H = 2000.0
USUAL: Hourly = {SPOT: [(-1, 1.0)], ON_DEMAND: [(-1, 3.0)]}
FLAPS = [(half / 2, half / 2 + 0.25) for half in range(round(2 * FOREVER_H))]
"""There for a quarter of an hour, away for a quarter: no machine lives until its first checkpoint."""


def finish_h(state: State) -> float:
    assert state.finished_ms is not None, "it finishes"
    return (state.finished_ms - T0) / HOUR_MS


def usd(state: State) -> float:
    return state.bill.total / NANO


def test_a_pool_that_never_answers_is_asked_ever_more_rarely_and_costs_nothing() -> None:
    simulator, (state,) = played(record(USUAL), {SPOT: [(-1, FOREVER_H)]}, "live", a_job(40))
    assert usd(state) < 3.0 * 40 * 1.04, "nothing but on-demand, with the time for saves"
    assert finish_h(state) < 82, "it waited for no longer than the job takes"
    asked = [point.at_ms for point in simulator.points if point.kind == "refused"]
    gaps_h = [(b - a) / HOUR_MS for a, b in pairwise(asked)]
    assert 0 < len(gaps_h) < 40
    assert max(gaps_h) >= 3.9


@pytest.mark.parametrize("policy", ["live", "new"])
@pytest.mark.parametrize(("deadline_h", "tries", "more"), [(24.0, 15, 1.15), (None, 70, 1.5)])
def test_a_pool_that_flaps_faster_than_a_checkpoint_is_left_for_on_demand(
    policy: str, deadline_h: float | None, tries: int, more: float
) -> None:
    """Without a deadline it takes many losses until the pool's machines are expected to live so shortly."""
    _, (state,) = played(record(USUAL), {SPOT: FLAPS}, policy, a_job(12, deadline_h=deadline_h))
    assert finish_h(state) <= (deadline_h or 48)
    assert usd(state) < more * 3.0 * 12.1
    assert state.losses < tries


@pytest.mark.parametrize("deadline_h", [None, 40.0])
def test_a_spot_price_that_rises_a_hundredfold_is_left_as_soon_as_the_job_may_move(deadline_h: float | None) -> None:
    market = record({SPOT: [(-1, 1.0), (5, 100.0)], ON_DEMAND: [(-1, 3.0)]})
    simulator, (state,) = played(market, {}, "live", a_job(20, deadline_h=deadline_h))
    (move,) = simulator.moves["job_0"]
    assert move.at_ms == T0 + 5 * HOUR_MS
    assert usd(state) < 5 * 1.0 + 0.2 * 100.0 + 15.5 * 3.0


def test_a_free_machine_is_taken_and_kept() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 0.0)], ON_DEMAND: [(-1, 3.0)]})
    simulator, (state,) = played(market, {}, "live", a_job(20))
    assert usd(state) < 0.2, "its disk"
    assert [point.offer_id for point in simulator.points if point.kind == "launched"] == [OTHER.id]


def test_in_a_market_with_one_zone_a_job_waits_for_it() -> None:
    simulator, (state,) = played(record({SPOT: [(-1, 1.0)]}), {SPOT: [(3, 9)]}, "live", a_job(10))
    assert finish_h(state) < 20
    assert usd(state) < 1.0 * 11.5
    assert {point.offer_id for point in simulator.points} == {SPOT.id}


def test_a_hopeless_deadline_is_missed_by_as_little_as_possible_at_once() -> None:
    simulator, (state,) = played(record(USUAL), {}, "live", a_job(10, deadline_h=5))
    assert finish_h(state) < 10.5
    assert simulator.points[0].at_ms == T0


def test_a_budget_that_cannot_buy_the_job_is_not_spent_at_all() -> None:
    _, (state,) = played(record(USUAL), {}, "live", a_job(10, budget_nano_usd=4 * NANO))
    assert (state.paused_ms, state.bill.total) == (T0, 0)


@pytest.mark.parametrize(("budget_usd", "latest_h"), [(27.0, 11.0), (20.0, 29.0)])
def test_fastest_within_a_budget_buys_on_demand_as_soon_as_that_pays_for_the_rest(
    budget_usd: float, latest_h: float
) -> None:
    """Ten hours of work, of which the budget pays for less on demand; spot is away from the third hour to the 20th."""
    job = a_job(10, budget_nano_usd=round(budget_usd * NANO))
    fastest = replace(job, job=replace(job.job, spec=replace(job.job.spec, objective=FASTEST)))
    _, (state,) = played(record(USUAL), {SPOT: [(3, 20)]}, "live", fastest)
    assert latest_h - 1.5 < finish_h(state) <= latest_h
    assert usd(state) <= budget_usd


def test_a_job_of_unknown_speed_is_measured_and_finishes_however_bad_the_market() -> None:
    market = record({SPOT: [(-1, 1.0), (5, 100.0), (6, 0.01)], OTHER: [(-1, 1.2)], ON_DEMAND: [(-1, 3.0)]})
    _, (state,) = played(market, {SPOT: [(1, 4)], OTHER: FLAPS}, "new", a_job(20, deadline_h=30))
    assert finish_h(state) <= 30
    assert usd(state) < 3.0 * 20.5
