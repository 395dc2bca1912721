"""Of several pools, the machine that runs ages: young capacity is lost sooner, and an old machine is worth keeping."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.policy.slack.planner import Planner
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.slack.spells import Spells
from orchestrator.policy.slack.value import ValueTable

TICK_H = 0.25


def several(ticks=0, up_h=(2.0, 2.0)):
    """Spells of two pools whose machines age, watched for so many ticks; every spell is of one of the lengths."""
    spells = Spells(2, TICK_H, machine_h=(0.5, 2.0))
    for pool in (0, 1):
        draw, there, left = np.random.default_rng(pool), False, 1
        for tick in range(ticks):
            left -= 1
            if left == 0:
                there = not there
                left = max(1, round(draw.choice(up_h) / TICK_H)) if there else 4
            spells.saw(pool, there, tick * TICK_H)
    spells.refresh()
    return spells


def test_of_several_pools_a_young_machine_is_lost_sooner_and_at_a_random_moment_as_often_as_its_pool():
    spells = several()
    young, grown, old = spells.losses(0)
    assert young > grown > old
    assert spells.mature(0) @ spells.losses(0) == pytest.approx(spells.ends(0)[1][0], rel=1e-3)


def test_that_old_machines_last_is_learned_from_all_pools():
    bursts, steady = (several(6_000, up_h) for up_h in ((0.25, 20.0), (2.5, 2.75)))
    assert bursts.losses(0)[0] > 10 * bursts.losses(0)[2]
    assert steady.losses(0)[0] < steady.losses(0)[2]


def test_an_old_machine_is_worth_more_than_a_young_one():
    spells = several(2_000, (0.25, 20.0))
    none = np.zeros((2, 2))
    two = Problem(20.0, 2.0, TICK_H, 0.2, (0, 1), (1.0, 1.0), (1.0, 1.0), (0,), (3.0,), (1.0,), none, None)
    table = ValueTable(two, spells)
    states = [np.array([0.5, 0.5])] * 2
    young, old = (table.spot(0, np.eye(3)[phase], 20.0, 2.0, states) for phase in (0, 2))
    assert old < young < table.lost(0, 20.0, 2.0, states)


def test_a_young_machine_is_not_given_up_for_an_older_one_in_the_same_pool():
    planner = Planner(Terms(0.1, TICK_H, (3.0, 3.0), np.zeros((2, 2)), (1.0, 1.0), 0.0), several(2_000, (0.25, 20.0)))
    for tick in range(2_000, 2_020):
        for pool in (0, 1):
            planner.spells.saw(pool, pool == 0 and tick == 2_019, tick * TICK_H)
    now = Situation(2_019 * TICK_H, 100, 20.0, (0, True), 0.0, 0, (1.0, 1.0))
    assert planner.options(now)[0].action == "stay"


def test_capacity_that_has_just_come_counts_for_less_than_capacity_that_has_been_there():
    spells = several(2_000, (0.25, 20.0))
    for tick in range(2_000, 2_040):
        spells.saw(0, True, tick * TICK_H)
        spells.saw(1, tick == 2_039, tick * TICK_H)
    now_h = 2_039 * TICK_H
    assert spells.useful(0, now_h) == pytest.approx(spells.soon(0, now_h))
    assert spells.useful(1, now_h)[-1] < 0.7 * spells.soon(1, now_h)[-1]


@pytest.mark.parametrize("other_usd", [1.5, 2.0])
def test_a_waiting_job_takes_capacity_that_has_just_returned(other_usd):
    """It does not wait until that is older: by then, most of it is gone again, and so is the slack."""
    tick_h, now_h = 1 / 6, 0.0
    spells = Spells(2, tick_h, machine_h=(0.5, 2.0))
    for number in range(12):
        for there, hours in ((True, 12.0 if number % 3 == 0 else 0.5), (False, 1.0)):
            for _ in range(round(hours / tick_h)):
                for pool in (0, 1):
                    spells.saw(pool, there, now_h)
                now_h += tick_h
    spells.saw(0, True, now_h)
    spells.saw(1, False, now_h)
    planner = Planner(Terms(tick_h, tick_h, (6.0, 6.0), np.zeros((2, 2)), (1.0, 1.0)), spells)
    best = planner.best(Situation(now_h, round(28 / tick_h), 20.0, None, 0.0, 0, (1.0, other_usd)))
    assert (best.action, best.pool) == ("spot", 0)
