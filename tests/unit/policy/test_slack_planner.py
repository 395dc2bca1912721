"""The value of slack: what the planner does, and what it never does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arena.ticks import play
from orchestrator.policy import online
from orchestrator.policy.slack.known import KnownSpells, PoolRates
from orchestrator.policy.slack.planner import Planner
from orchestrator.policy.slack.situation import Situation, Terms
from tests.unit.arena.small_markets import task, trace
from tests.unit.policy.pools import GATE, TICK_H, chain


def many(zones, ticks, spot):
    """A market of many zones that always have capacity."""
    egress = np.full((zones, zones), 0.01)
    return replace(
        trace([[1] * ticks]).window(0, ticks),
        zones=tuple(f"zone-{zone}" for zone in range(zones)),
        up=np.ones((zones, ticks), np.bool_),
        spot=np.array(spot),
        on_demand=np.full(zones, 3.0),
        egress=egress,
        speed=(1.0,) * zones,
    )


class Liar:
    """A cloud whose probes always promise capacity."""

    def __init__(self, cloud):
        self.try_launch, self.terminate = cloud.try_launch, cloud.terminate

    def probe(self, zone):
        return True


class LiedTo:
    name = "lied to"

    def __init__(self, policy):
        self.policy, self.start = policy, policy.start

    def step(self, seen, cloud):
        self.policy.step(seen, Liar(cloud))


@GATE
@given(
    st.integers(1, 4),
    st.integers(24, 60),
    st.floats(1.01, 2.5),
    st.sampled_from([0.3, 1.0, 1.2, 2.0]),
    st.sampled_from(["flaps", "vanishes", "lies", "empty"]),
    st.integers(0, 99),
)
def test_no_market_makes_it_miss(zones, ticks, ratio, overhead, kind, seed):
    """Capacity that flaps at the length of a restart, vanishes when slack runs out, is promised but not there,
    or never is."""
    work = min(ticks / ratio, ticks - 1 - overhead)
    slack = ticks - work
    number = np.arange(ticks)
    if kind == "flaps":
        up = [(number + seed + zone) // max(round(overhead), 1) % 2 == 0 for zone in range(zones)]
    elif kind == "vanishes":
        up = [number < slack - overhead - 1 + zone % 2 for zone in range(zones)]
    else:
        up = [
            np.random.default_rng(seed + zone).random(ticks) < (0.4 if kind == "lies" else 0.0) for zone in range(zones)
        ]
    policy = online.make()
    done = play(
        LiedTo(policy) if kind == "lies" else policy, task(work, ticks, overhead, gb=1), trace(up).window(0, ticks)
    )
    assert done.finished


@pytest.mark.parametrize("price", [0.0, 300.0])
def test_a_price_of_nothing_or_a_hundredfold_is_only_a_price(price):
    ticks = 60
    spot = [[1.0] * ticks, [price] * ticks]
    done = play(online.make(), task(20, ticks, 0.5), trace([[1] * ticks] * 2, spot).window(0, ticks))
    assert done.finished
    assert {place[0] for place in done.track if place} == ({1} if price == 0 else {0})


def test_a_deadline_that_cannot_be_met_runs_on_the_fastest_machine_at_once():
    planner = Planner(Terms(0.2, TICK_H, (3.0, 2.0), np.zeros((2, 2)), (2.0, 1.0), 0.0))
    now = Situation(0.0, 10, 30.0, None, 0.0, None, (1.0, 1.0))
    best = planner.options(now)[0]
    assert (best.action, best.pool) == ("on_demand", 0)
    assert planner.options(Situation(TICK_H, 9, 30.0, (0, True), 0.0, 0, (1.0, 1.0)))[0].action == "stay"


def test_a_job_that_is_nearly_done_does_not_stop_to_save_cents():
    planner = Planner(Terms(0.2, TICK_H, (3.0,), np.zeros((1, 1)), (1.0,), 0.0))
    for tick in range(40):
        planner.spells.saw(0, True, tick * TICK_H)
    for running, action in (((0, True), "stay"), ((0, False), "stay"), (None, "spot")):
        best = planner.options(Situation(10.0, 80, 0.1, running, 0.0, 0, (1.0,)))[0]
        assert best.action == action


def test_a_slow_machine_that_somebody_else_started_is_left_in_time():
    """12 ticks are needed on the fast machine, restart included."""
    planner = Planner(Terms(2.0, 1.0, (1.0, 3.0), np.zeros((2, 2)), (0.5, 1.0), 0.0))
    work_h, at, running, overhead_h = 10.0, 0, (0, False), 0.0
    for tick in range(16):
        best = planner.options(Situation(float(tick), 16 - tick, work_h, running, overhead_h, at, (9.0, 9.0)))[0]
        if best.action == "on_demand":
            assert best.pool is not None
            at, running, overhead_h = best.pool, (best.pool, False), 2.0
        useful_h = max(0.0, 1.0 - overhead_h)
        overhead_h = max(0.0, overhead_h - 1.0)
        work_h -= useful_h * planner.terms.speed[at]
        if work_h <= 1e-9:
            break
    assert work_h <= 1e-9


def test_more_work_than_the_table_was_made_for_makes_it_solved_again():
    """The job turned out to be slower: what was plenty of slack is none."""
    planner = Planner(Terms(0.2, TICK_H, (3.0,), np.zeros((1, 1)), (1.0,), 0.0))
    planner.options(Situation(0.0, 80, 10.0, None, 0.0, None, (1.0,)))
    best = planner.options(Situation(TICK_H, 79, 19.0, None, 0.0, None, (1.0,)))[0]
    assert planner.solved == 2
    assert best.usd > 1.5 * 10.0


@pytest.mark.parametrize(
    ("hours", "bought", "least", "most"),
    [
        (60, {0}, 20.2, 21.5),  # the slow machine alone: $1.00 an hour, half as fast
        (14, {0, 1}, 24.0, 29.0),  # some of the work on it
        (10.5, {1}, 30.3, 32.0),  # no time for it: the fast one, at $3.00
    ],
)
def test_on_demand_is_bought_where_it_costs_least_as_long_as_there_is_time(hours, bought, least, most):
    ticks = int(4 * hours)
    window = trace([[0] * ticks] * 2, on_demand=[1.0, 3.0], tick_ms=900_000, speed=(0.5, 1.0)).window(0, ticks)
    done = play(online.make(), task(40, ticks, 0.4, tick_ms=900_000), window)
    assert done.finished
    assert {place[0] for place in done.track if place} == bought
    assert least <= done.usd <= most


def test_with_time_enough_the_cheap_slow_machine_is_kept():
    """Eight times as fast for nine times the price, and lost after twenty minutes each time."""
    ticks = 6 * 150
    flaps = (np.arange(ticks) // 2) % 2
    spot = [[0.9] * ticks, [8.0] * ticks]
    window = trace([[1] * ticks, flaps], spot, on_demand=[3.0, 27.0], speed=(1.0, 8.0)).window(0, ticks)
    done = play(online.make(), task(6 * 90, ticks, 1.2), window)
    assert done.finished
    assert done.usd <= 1.05 * 0.9 * 90


def test_spells_shorter_than_the_steps_of_a_long_table_do_not_make_it_restart():
    ticks = 30 * 24
    up = np.tile([1, 1, 0, 0], ticks // 4)
    window, job = trace([up], tick_ms=1_800_000).window(0, ticks), task(0.4 * ticks, ticks, 0.1, tick_ms=1_800_000)
    done = play(online.make(), job, window)
    assert done.finished
    assert done.launches <= done.preemptions + 3
    assert done.on_demand_usd < 0.1 * done.usd


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_size_of_prices_changes_no_decision(scale):
    ticks, up = 96, [chain(3.0, 2.0, 96, seed) for seed in (1, 2)]
    spot = np.array([[1.0] * ticks, [1.3] * ticks]) * scale
    window = trace(up, spot, on_demand=3.0 * scale).window(0, ticks)
    reference = trace(up, spot / scale, on_demand=3.0).window(0, ticks)
    job = task(50, ticks, 1.2)
    assert play(online.make(), job, window).track == play(online.make(), job, reference).track


def test_a_price_that_jumps_above_on_demand_is_left_within_half_an_hour():
    ticks = 480
    spot = [[1.0] * 21 + [10.0] * 19 + [1.0] * (ticks - 40)]
    job = task(240, ticks, 2.0, tick_ms=360_000)
    done = play(online.make(), job, trace([[1] * ticks], spot, on_demand=3.0, tick_ms=360_000).window(0, ticks))
    assert sum(place == (0, "spot") for place in done.track[21:40]) <= 5


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_what_is_no_price_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="on-demand price"):
        Planner(Terms(0.2, TICK_H, (bad,), np.zeros((1, 1)), (1.0,), 0.0))
    planner = Planner(Terms(0.2, TICK_H, (3.0,), np.zeros((1, 1)), (1.0,), 0.0))
    with pytest.raises(ValueError, match="spot price"):
        planner.options(Situation(0.0, 80, 10.0, None, 0.0, None, (bad,)))


@pytest.mark.parametrize(("zones", "work"), [(40, 1), (40, 20), (7, 50), (2, 50)])
def test_probes_never_cost_more_than_their_share_of_the_work(zones, work):
    ticks = 120
    spot = [[1.0] * ticks] * (zones - 1) + [[1e4] * ticks]
    window = many(zones, ticks, spot)
    done = play(online.make(), task(work, ticks, 0.3), window)
    assert done.probe_usd > 0 or work == 1
    assert done.probe_usd <= 0.01 * (0.5 * work / 6 + ticks / 6) + 1 / 60


@GATE
@given(
    kept_h=st.sampled_from((0.0, 0.5, 1.1, 3.0)),
    egress=st.floats(0.0, 6.0),
    cheap=st.floats(0.3, 2.5),
    slack_h=st.floats(30.0, 60.0),
)
def test_with_time_to_spare_nothing_is_bought_for_less_than_it_costs_until_it_may_be_left(
    kept_h, egress, cheap, slack_h
):
    """From on-demand, which has no zone, the way to another zone is free; between zones it costs `egress`. The job's
    zone has just lost its capacity. Buying in order to go on for nothing pays only if egress costs more than on-demand
    for as long as it is kept."""
    ways = np.array([[0.0, egress, 0.0], [egress, 0.0, 0.0], [0.0, 0.0, 0.0]])
    terms = Terms(
        0.1, TICK_H, (cheap, cheap, 3.0), ways, (1.0,) * 3, 0.0, frozenset({0, 1}), frozenset({2}), kept_h=kept_h
    )
    rates = [PoolRates(0.5, 0.1, False), PoolRates(0.5, 0.1, True), PoolRates(1.0, 1.0)]
    now = Situation(0.0, round((20 + slack_h) / TICK_H), 20.0, None, 0.0, 0, (cheap, cheap, 3.0))
    planner = Planner(terms, KnownSpells(rates, TICK_H))
    costs = {each.action: each.usd for each in planner.options(now)}
    if egress < (max(kept_h, TICK_H) - 0.1) * (3.0 - cheap):
        assert costs["on_demand"] > costs["wait"]
