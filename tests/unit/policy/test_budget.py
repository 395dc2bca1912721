"""The budget policy: the budget is never passed, and money buys time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.arena.ticks import play
from orchestrator.policy import online
from tests.unit.arena.small_markets import task, trace

GATE = settings(deadline=None, derandomize=True, max_examples=8)
HOUR_MS = 3_600_000


def hourly(up, spot=1.0, **more):
    """Ticks of an hour; on-demand costs 3."""
    return trace(up, spot, on_demand=3.0, tick_ms=HOUR_MS, **more).window(0, len(up[0]))


def spend(window, usd, hours=20, deadline=False, overhead=0.2, gb=0):
    job = task(hours, window.ticks, overhead, gb=gb, tick_ms=HOUR_MS)
    policy = online.make(budget_usd=usd) if deadline else online.make("budget", budget_usd=usd)
    return play(policy, job, window)


@GATE
@given(st.integers(0, 10**6), st.integers(1, 2), st.floats(0.1, 1.5), st.booleans())
def test_the_budget_is_never_passed(seed, zones, share, deadline):
    draw = np.random.default_rng(seed)
    up = (np.cumsum(draw.random((zones, 50)) < 0.15, axis=1) + draw.integers(0, 2, (zones, 1))) % 2
    spot = draw.uniform(0.5, 2.0, (zones, 1)) * np.exp(np.cumsum(draw.normal(0, 0.1, (zones, 50)), axis=1))
    window = hourly(up, spot, speed=tuple(draw.choice([1.0, 0.5, 2.0], zones)))
    usd = 36 * share
    assert spend(window, usd, 12, deadline=deadline, overhead=1.2, gb=20).usd <= usd


def test_a_budget_that_pays_for_on_demand_buys_it_where_there_is_no_spot():
    done = spend(hourly([[0] * 80]), 21 * 3.0 + 0.01)
    assert done.finished
    assert done.ticks_used == 21


def test_money_to_spare_is_spent_while_capacity_is_away():
    """Ten hours without capacity; the rest of 20 hours of work costs 11 on spot and 30 on demand."""
    away = [[0] * 10 + [1] * 70]
    ample, tight = spend(hourly(away), 45.0), spend(hourly(away), 24.0)
    assert ample.finished
    assert tight.finished
    assert ample.on_demand_usd > 0
    assert tight.on_demand_usd == 0
    assert ample.ticks_used <= tight.ticks_used - 5


@pytest.mark.parametrize("seed", range(20))
def test_on_demand_is_not_left_again_and_again_for_capacity_that_is_soon_gone(seed):
    """Six hours of work, restarts of half an hour. Capacity stays for 10 to 30 minutes and is away for an hour on
    average. Each machine that is lost before it trains takes away money that on-demand needs."""
    draw, up = np.random.default_rng(seed), np.zeros((2, 240), int)
    for zone in up:
        at = int(draw.exponential(6))
        while at < len(zone):
            stays = 1 + int(draw.exponential(1))
            zone[at : at + stays] = 1
            at += stays + 1 + int(draw.exponential(6))
    job = task(36, 240, 3)
    done = play(online.make("budget", budget_usd=1.04 * 6.5 * 24.5), job, trace(up, 7.8, on_demand=24.5).window(0, 240))
    assert done.finished
    assert done.ticks_used <= 1.1 * job.ticks_on_demand(600_000)


def test_a_job_stops_before_rising_prices_would_pass_its_budget():
    prices = [[1.0] * 10 + [9.0] * 70]
    done = spend(hourly([[1] * 80], prices), 25.0)
    assert not done.finished
    assert done.usd <= 25.0
    assert done.track[-1] is None


def test_it_goes_on_when_prices_have_fallen_again():
    prices = [[1.0] * 10 + [2.9] * 20 + [1.0] * 50]
    done = spend(hourly([[1] * 80], prices), 23.0)
    assert done.finished
    assert done.usd <= 23.0


def test_a_more_expensive_faster_machine_is_taken_if_the_budget_pays_for_it():
    window = hourly([[1] * 80, [1] * 80], [[1.0] * 80, [5.0] * 80], speed=(1.0, 2.0))
    rich, poor = spend(window, 60.0), spend(window, 24.0)
    assert {place[0] for place in rich.track} == {1}
    assert rich.ticks_used == 11
    assert poor.finished
    assert poor.usd <= 24.0


def test_with_a_deadline_an_ample_budget_changes_nothing():
    draw = np.random.default_rng(3)
    up = (np.cumsum(draw.random((2, 60)) < 0.15, axis=1)) % 2
    window = hourly(up, 1.0)
    job = task(30, 60, 0.2, tick_ms=HOUR_MS)
    assert play(online.make(budget_usd=1e4), job, window) == play(online.make(), job, window)


def test_a_budget_that_cannot_keep_the_deadline_is_kept_itself():
    """30 hours of capacity come first after 25: on demand until then costs more than the budget."""
    window = hourly([[0] * 25 + [1] * 55])
    job = task(20, 30, 0.2, tick_ms=HOUR_MS)
    done = play(online.make(budget_usd=30.0), job, window)
    assert not done.finished
    assert done.usd <= 30.0


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf"), "5", True])
def test_a_budget_must_be_a_finite_amount(usd):
    with pytest.raises(ValueError, match="invalid budget"):
        spend(hourly([[1] * 80]), usd)


def test_the_budget_policy_needs_a_budget():
    with pytest.raises(ValueError, match="needs a budget in US"):
        online.make("budget")
