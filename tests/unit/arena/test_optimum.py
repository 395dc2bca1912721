"""The optimum against brute force over everything a policy could do, and against policies."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.arena.baselines.progress import UniformProgress
from orchestrator.arena.baselines.registry import BASELINES
from orchestrator.arena.baselines.simple import Greedy, OnDemandOnly
from orchestrator.arena.optimum import optimum
from orchestrator.arena.protocol import ON_DEMAND, SPOT
from orchestrator.arena.ticks import play
from orchestrator.policy import online
from tests.unit.arena.small_markets import task, trace

GATE = settings(deadline=None, derandomize=True, max_examples=60)


def brute(job, window):
    """The least over all sequences of actions, by the rules as written; no assumption about what is worth doing."""
    tick, hours, zones = window.tick_ms, window.tick_ms / 3_600_000, range(len(window.zones))

    @cache
    def best(t, left, running, overhead, at):
        if left <= 0:
            return 0.0
        if t == job.ticks:
            return math.inf
        if running is not None and running[1] == SPOT and not window.up[running[0], t]:
            running, overhead = None, 0
        choices = [(running, overhead, at, 0.0), (None, 0, at, 0.0)]
        for zone in zones:
            for kind in (SPOT, ON_DEMAND):
                if (zone, kind) != running and (kind == ON_DEMAND or window.up[zone, t]):
                    egress = 0.0 if at is None else job.checkpoint_gb * window.egress[at, zone]
                    choices.append(((zone, kind), job.overhead_ms, zone, egress))
        least = math.inf
        for place, wait, where, cost in choices:
            if place is None:
                least = min(least, best(t + 1, left, None, 0, where))
                continue
            zone, kind = place
            price = window.spot[zone, t] if kind == SPOT else window.on_demand[zone]
            waited = min(wait, tick)
            done = (tick - waited) * round(window.speed[zone] * 1000) / 1000
            then = best(t + 1, left - done, place, wait - waited, where)
            least = min(least, cost + price * hours + then)
        return least

    return best(0, job.work_ms, None, 0, None)


SHORT, FEW = st.integers(3, 6), st.integers(1, 3)


@st.composite
def problems(draw, ticks=SHORT, zones=FEW, speeds=(1.0,)):
    count, length = draw(zones), draw(ticks)
    row = st.lists(st.integers(0, 1), min_size=length, max_size=length)
    price = st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0]), min_size=length, max_size=length)
    market = trace(
        draw(st.lists(row, min_size=count, max_size=count)),
        draw(st.lists(price, min_size=count, max_size=count)),
        draw(st.lists(st.sampled_from([2.0, 3.0]), min_size=count, max_size=count)),
        speed=(1.0, *draw(st.lists(st.sampled_from(speeds), min_size=count - 1, max_size=count - 1))),
    )
    overhead = draw(st.sampled_from([0, 0.25, 0.5, 1, 1.25, 2]))
    most = length - overhead
    work = draw(st.sampled_from([w for w in (0.25, 0.6, 1, 1.5, 2, 2.75, 3, 4) if w <= most]))
    return task(work, length, overhead, draw(st.sampled_from([0.0, 5.0, 50.0]))), market.window(0, length)


@GATE
@given(problems())
def test_it_is_what_brute_force_finds(problem):
    job, window = problem
    found = optimum(job, window)
    assert found.exact
    assert found.usd == pytest.approx(brute(job, window), rel=1e-9)


@GATE
@given(problems(ticks=st.integers(5, 30), zones=st.integers(1, 4)))
def test_no_policy_is_cheaper(problem):
    job, window = problem
    least = optimum(job, window).usd
    for policy in (OnDemandOnly(), Greedy(), UniformProgress()):
        done = play(policy, job, window)
        assert not done.finished or done.usd >= least - 1e-9


MIXED = (0.4, 1.0, 2.5, 3.7)


@GATE
@given(problems(speeds=MIXED), st.integers(10, 200))
def test_with_several_kinds_of_machine_it_is_what_brute_force_finds_or_a_lower_bound(problem, units):
    job, window = problem
    least = brute(job, window)
    for found in (optimum(job, window), optimum(job, window, max_units=units)):
        assert found.usd <= least + 1e-9
        assert not found.exact or found.usd == pytest.approx(least, rel=1e-9)


@settings(GATE, max_examples=25)
@given(problems(ticks=st.integers(8, 40), zones=st.integers(2, 4), speeds=MIXED), st.sampled_from([200, 60_000]))
def test_no_policy_is_cheaper_than_the_bound_of_several_kinds(problem, units):
    job, window = problem
    least = optimum(job, window, max_units=units).usd
    policies = [make() for make in BASELINES.values()] + [online.make()]
    for policy in policies:
        done = play(policy, job, window)
        assert not done.finished or done.usd >= least - 1e-9


@settings(GATE, max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 16))
def test_no_policy_is_cheaper_than_the_optimum_of_a_gang(seed, gang):
    generator = np.random.default_rng(seed)
    capacity = generator.integers(0, 17, (3, 8)).repeat(5, axis=1)
    window = trace(capacity, generator.uniform(0.4, 2.0, (3, 1)).repeat(40, axis=1)).window(0, 40, gang=gang)
    job = task(24, 40, 1.2, 20)
    least = optimum(job, window)
    assert least.exact
    for make in BASELINES.values():
        done = play(make(), job, window)
        assert not done.finished or done.usd >= least.usd - 1e-9


@GATE
@given(problems(), st.integers(2, 30))
def test_a_coarser_unit_is_a_lower_bound(problem, units):
    job, window = problem
    assert optimum(job, window, max_units=units).usd <= optimum(job, window).usd + 1e-9


@pytest.mark.parametrize(("gb", "exact"), [(0.0, True), (2.0, True), (100.0, False)])
def test_where_a_checkpoint_may_take_a_detour_it_is_a_lower_bound(gb, exact):
    window = trace([[1, 1, 0, 0, 0, 0], [0] * 6, [0, 0, 1, 1, 1, 1]], on_demand=9.0).window(0, 6)
    egress = np.array([[0, 0.02, 0.08], [0.02, 0, 0.02], [0.08, 0.02, 0]])  # Asia, America, Asia
    window, job = replace(window, egress=egress), task(3, 6, 0.5, gb)
    found = optimum(job, window)
    assert found.exact is exact
    least = brute(job, window)
    assert found.usd == pytest.approx(least) if exact else found.usd <= least + 1e-9


def test_without_on_demand_it_may_be_impossible():
    window = trace([[0, 0, 0, 0]]).window(0, 4)
    assert optimum(task(2, 4), window, on_demand=False).usd == math.inf
    assert optimum(task(2, 4), window).usd == pytest.approx(3 * 3 / 6)
