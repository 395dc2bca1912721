"""The value table of several pools: where the checkpoint is."""

from __future__ import annotations

import numpy as np

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Spells
from orchestrator.policy.slack.value import ValueTable

TICK_H = 0.25


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


def test_pools_between_which_nothing_is_paid_are_one_place_of_the_checkpoint():
    egress = np.array([[0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.5, 0.5, 0.0]])
    spells, states = Spells(3, TICK_H), [np.full(2, 1 / 2)] * 3
    table = ValueTable(problem(3, egress_usd=egress), spells)
    same, other = (table.waiting(pool, 20.0, 6.0, states) for pool in (0, 2))
    assert table.waiting(1, 20.0, 6.0, states) == same
    assert table.waiting(None, 20.0, 6.0, states) < min(same, other)
    assert table.knows(1)
    assert not table.knows(3)
