"""Probes of spot capacity: made where knowing more could save money, and hardly ever elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.arena.ticks import play
from orchestrator.policy import online
from orchestrator.policy.slack.probes import MOST, WORTH, Probes
from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.slack.spells import Spells
from tests.unit.arena.small_markets import task, trace

TICK_H, PROBE_H = 0.25, 1 / 60


def probes(zones=3):
    """Probes of a job in equal zones, and its spells."""
    terms = Terms(0.2, TICK_H, (4.0,) * zones, np.zeros((zones, zones)), (1.0,) * zones, PROBE_H)
    spells = Spells(zones, TICK_H)
    return Probes(terms, spells, 1.0), spells


def at(now_h, work_h=50.0, zones=3):
    """A job that runs on spot in the last zone."""
    return Situation(now_h, 400, work_h, (zones - 1, True), 0.0, zones - 1, (1.0,) * zones)


def market(up, on_demand=4.0):
    """A market of equal zones, with this capacity by zone and tick."""
    zones, ticks = up.shape
    return replace(
        trace([[1] * ticks]).window(0, ticks),
        zones=tuple(f"zone-{zone}" for zone in range(zones)),
        up=up,
        spot=np.ones((zones, ticks)),
        on_demand=np.full(zones, on_demand),
        egress=np.zeros((zones, zones)),
        speed=(1.0,) * zones,
    )


def test_nothing_is_probed_if_the_work_is_expected_to_cost_no_more_than_on_spot():
    found, spells = probes()
    found.expected_usd = 50.0
    assert found.due(at(1.0)) == []
    spells.saw(0, True, 1.0)
    assert found.due(at(40.0)) == []


@pytest.mark.parametrize("expected_usd", [60.0, 100.0, 150.0])
def test_probes_of_each_pool_cost_their_share_of_what_knowing_more_could_save(expected_usd):
    found, spells = probes()
    found.expected_usd = expected_usd
    share_usd = WORTH * (expected_usd - 50.0) / 3
    every_h = max(50.0 * PROBE_H / share_usd, TICK_H)  # US$1 an hour
    for pool in (0, 1):
        spells.saw(pool, True, 10.0)
    if every_h > TICK_H:
        assert found.due(at(10.0 + 0.8 * every_h)) == []  # later, there may be no capacity, and the probe is cheaper
    assert found.due(at(10.0 + 1.01 * every_h)) == [0, 1]


def test_a_pool_that_is_probably_empty_is_looked_at_sooner_because_that_is_free():
    found, spells = probes()
    found.expected_usd = 53.0
    spells.saw(0, False, 10.0)
    spells.saw(1, True, 10.0)
    assert found.due(at(10.0 + TICK_H)) == [0]


def test_as_long_as_the_cost_is_not_known_only_the_limit_counts():
    found, spells = probes()
    assert found.due(at(0.0)) == [0, 1]
    for pool in (0, 1):
        spells.saw(pool, True, 0.0)
    assert found.due(at(TICK_H)) == [0, 1]
    for _ in range(math.ceil(MOST * 50.0 / PROBE_H)):
        found.billed(0)
    assert found.due(at(2 * TICK_H)) == []


def test_a_job_that_finds_capacity_everywhere_hardly_pays_for_probes():
    window = market(np.ones((5, 600), np.bool_))
    done = play(online.make(), task(300, 600, 1.0), window)
    assert done.finished
    assert done.probe_usd < 0.004 * done.usd


def test_a_job_that_must_buy_looks_for_capacity():
    rng, spells = np.random.default_rng(7), []
    for _ in range(5):
        there = np.repeat(rng.random(60) < 0.25, 10)  # spells of 10 ticks, away for most of the time
        spells.append(there)
    done = play(online.make(), task(300, 360, 1.0), market(np.array(spells)))
    assert done.finished
    assert done.on_demand_usd > 0
    assert done.probe_usd > 0.002 * done.usd
