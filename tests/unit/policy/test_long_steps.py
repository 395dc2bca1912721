"""Steps that are longer than spells: what happens within one is what would happen in many short ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.policy.slack.known import KnownSpells, PoolRates
from orchestrator.policy.slack.long_steps import within
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.value import ValueTable

RATES = st.floats(0.003, 4.0)
GONE, THERE = 0, 1


def in_short_steps(returns: float, losses: float, hours: float, begins: int, ends: int) -> tuple[float, float, float]:
    """(probability of this end, hours with capacity, changes to capacity), in 4,000 short steps."""
    count = 4000
    short_h = hours / count
    step = np.array([[1 - returns * short_h, returns * short_h], [losses * short_h, 1 - losses * short_h]])
    to_go = [np.eye(2)[:, ends]]
    for _ in range(count):
        to_go.append(step @ to_go[-1])
    now, there_h, changes = np.eye(2)[begins], 0.0, 0.0
    for number in range(count):
        after = to_go[count - number - 1]
        there_h += short_h * now[THERE] * (step[THERE] @ after)
        changes += now[GONE] * step[GONE, THERE] * after[THERE]
        now = now @ step
    chance = now[ends]
    return chance, there_h / chance, changes / chance


@pytest.mark.parametrize(("returns", "losses", "hours"), [(0.8, 0.1, 6.0), (2.0, 0.5, 8.0), (0.2, 0.05, 0.5)])
def test_a_long_step_is_what_many_short_ones_are(returns: float, losses: float, hours: float) -> None:
    found = within(returns, losses, hours)
    stays, kept_h, kept_returns = in_short_steps(returns, losses, hours, THERE, THERE)
    assert found.stays == pytest.approx(stays, rel=2e-3)
    assert found.kept_h == pytest.approx(kept_h, rel=2e-3)
    assert found.kept_returns == pytest.approx(kept_returns, rel=5e-3)
    _, lost_h, lost_returns = in_short_steps(returns, losses, hours, THERE, GONE)
    _, back_h, back_returns = in_short_steps(returns, losses, hours, GONE, THERE)
    assert found.changed_h == pytest.approx(lost_h, rel=5e-3)
    assert found.changed_h == pytest.approx(back_h, rel=5e-3)
    assert found.changed_returns == pytest.approx(lost_returns, rel=5e-3)
    assert found.changed_returns == pytest.approx(back_returns - 1, rel=5e-3, abs=2e-3)


@settings(max_examples=60)
@given(returns=RATES, losses=RATES, hours=st.floats(0.25, 24.0))
def test_the_hours_add_up(returns: float, losses: float, hours: float) -> None:
    found, total = within(returns, losses, hours), returns + losses
    there = returns / total * hours + losses / total * -math.expm1(-total * hours) / total
    assert found.stays * found.kept_h + (1 - found.stays) * found.changed_h == pytest.approx(there)
    assert 0 < found.kept_h <= hours * (1 + 1e-9)
    assert 0 < found.changed_h < hours
    assert found.kept_returns >= 0
    assert found.changed_returns >= -1e-9


def problems(seed: int) -> tuple[Problem, KnownSpells]:
    """A long job on two or three spot pools, or on one of two kinds of on-demand machine; random."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(2, 4))
    work_h = float(chance.uniform(80, 200))
    slack_h = work_h * float(chance.choice([0.1, 0.25, 0.5, 1.0]))
    usd_to_leave = float(chance.choice([0.0, 3.0, 15.0]))
    rates = [PoolRates(float(1 / chance.uniform(0.5, 4)), float(chance.choice([0.03, 0.1, 0.3]))) for _ in range(count)]
    problem = Problem(
        hours_left=work_h + slack_h,
        slack_h=slack_h,
        tick_h=0.25,
        restart_h=float(chance.uniform(0.05, 0.5)),
        pools=tuple(range(count)),
        spot_usd=tuple(np.sort(chance.uniform(0.25, 0.6, count)).tolist()),
        speed=(1.0,) * count,
        on_demand_pools=(count, count + 1),
        on_demand_usd=(1.0, 0.8),
        on_demand_speed=(1.0, 0.7),
        egress_usd=np.where(np.eye(count + 2) > 0, 0.0, usd_to_leave),
        at=0,
    )
    return problem, KnownSpells([*rates, *[PoolRates(1.0, 1.0)] * 2], 0.25)


def values(problem: Problem, spells: KnownSpells, steps: int) -> np.ndarray:
    """US$ to finish if it waits now, runs in the first pool, or buys; no pool has capacity otherwise."""
    table, gone = ValueTable(problem, spells, steps), [np.array([1.0, 0.0])] * len(problem.pools)
    left_h, slack_h = problem.hours_left, problem.slack_h
    return np.array(
        [
            table.waiting(0, left_h, slack_h, gone),
            table.spot(0, np.ones(1), left_h, slack_h, gone),
            table.on_demand(left_h, slack_h - problem.restart_h, gone),
        ]
    )


def test_few_steps_give_nearly_the_values_of_many() -> None:
    """When a wait lasted for whole steps, three of these were wrong by 28 to 51 %."""
    apart = [np.abs(values(*problems(seed), 32) / values(*problems(seed), 800) - 1).max() for seed in range(8)]
    assert np.mean(apart) < 0.02
    assert max(apart) < 0.06
