"""The value table of several pools: the ages of machines, and where the checkpoint is."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.policy.slack.alone import AloneTable
from orchestrator.policy.slack.spells import Spells
from orchestrator.policy.slack.value import Problem, ValueTable

TICK_H = 0.25


def ageing(hours, seed, young, old, away):
    """Whether a pool has capacity, tick by tick: it is lost at the rate `young` in its first hour and `old` later, and
    comes back at the rate `away`. Per hour."""
    generator, found, there, age_h = np.random.default_rng(seed), [], False, 0.0
    for _ in range(round(hours / TICK_H)):
        found.append(there)
        rate = (young if age_h < 1.0 else old) if there else away
        if generator.random() < -np.expm1(-rate * TICK_H):
            there, age_h = not there, 0.0
        else:
            age_h += TICK_H
    return found


def problem(pools=1, **changes):
    usual = dict(
        hours_left=20.0,
        slack_h=6.0,
        tick_h=TICK_H,
        restart_h=0.2,
        pools=tuple(range(pools)),
        spot_usd=(0.3,) * pools,
        speed=(1.0,) * pools,
        on_demand_pools=(0,),
        on_demand_usd=(1.0,),
        on_demand_speed=(1.0,),
        egress_usd=np.zeros((pools, pools)),
        at=0,
    )
    return Problem(**usual | changes)


@pytest.mark.parametrize("price", [0.3, 0.9])
def test_the_general_table_values_ages_as_that_of_one_pool_does(price):
    """A pool with three phases of absence and three of presence: both tables are solved with its rates."""
    spells = Spells(1, TICK_H, (1.0, 4.0), (0.5, 2.0))
    for tick, there in enumerate(ageing(200, 5, young=1.5, old=0.1, away=0.7)):
        spells.saw(0, there, tick * TICK_H)
    spells.refresh()
    its = problem(spot_usd=(price,))
    general, small, ages = ValueTable(its, spells), AloneTable(its, spells), np.eye(3)
    states = [np.full(6, 1 / 6)]
    for hours_left, slack_h in ((20.0, 6.0), (16.0, 6.0), (15.0, 3.0)):
        expected = small.waiting(0, hours_left, slack_h, states)
        assert general.waiting(0, hours_left, slack_h, states) == pytest.approx(expected, rel=0.03)
        for age in ages:
            expected = small.spot(0, age, hours_left, slack_h, states)
            assert general.spot(0, age, hours_left, slack_h, states) == pytest.approx(expected, rel=0.03)


def test_pools_between_which_nothing_is_paid_are_one_place_of_the_checkpoint():
    egress = np.array([[0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.5, 0.5, 0.0]])
    spells, states = Spells(3, TICK_H), [np.full(2, 1 / 2)] * 3
    table = ValueTable(problem(3, egress_usd=egress), spells)
    same, other = (table.waiting(pool, 20.0, 6.0, states) for pool in (0, 2))
    assert table.waiting(1, 20.0, 6.0, states) == same
    assert table.waiting(None, 20.0, 6.0, states) < min(same, other)
    assert table.knows(1)
    assert not table.knows(3)
