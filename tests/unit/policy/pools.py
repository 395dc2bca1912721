"""Pools of spot capacity with spells, and the problem of one job that has slack."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Spells

GATE = settings(deadline=None, derandomize=True, max_examples=25)
TICK_H = 0.25


def chain(up_h, down_h, ticks, seed=0, tick_h=TICK_H):
    """Whether a pool with exponential spells has capacity, tick by tick."""
    generator, there, found = np.random.default_rng(seed), True, []
    for _ in range(ticks):
        found.append(there)
        there ^= generator.random() < -np.expm1(-tick_h / (up_h if there else down_h))
    return np.array(found)


def watched(states, every=1, pools=1, pool=0):
    """Spells that were learned from looks at one pool at every so many ticks."""
    spells = Spells(pools, TICK_H)
    for tick in range(0, len(states), every):
        spells.saw(pool, bool(states[tick]), tick * TICK_H)
    spells.refresh()
    return spells


def problem(**changes):
    usual = dict(
        hours_left=20.0,
        slack_h=10.0,
        tick_h=TICK_H,
        restart_h=0.2,
        pools=(0,),
        spot_usd=(1.0,),
        speed=(1.0,),
        on_demand_pools=(0,),
        on_demand_usd=(3.0,),
        on_demand_speed=(1.0,),
        egress_usd=np.zeros((2, 2)),
        at=None,
    )
    return Problem(**usual | changes)
