"""The tick adapter: the protocol, the deadline, and that nothing but what was observed decides."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.arena.baselines.daily import Daily
from orchestrator.arena.ticks import play
from orchestrator.policy import online
from tests.unit.arena.small_markets import task, trace

GATE = settings(deadline=None, derandomize=True, max_examples=12)


class Recorder:
    """Passes everything on and keeps what was asked, and what was answered."""

    def __init__(self, policy, job=lambda job: job, observation=lambda seen: seen):
        self.policy, self.calls, self.job, self.observation = policy, [], job, observation

    def start(self, job, market):
        self.policy.start(self.job(job), market)

    def step(self, seen, cloud):
        calls = self.calls

        class Cloud:
            def try_launch(self, zone, kind):
                answer = cloud.try_launch(zone, kind)
                calls.append((seen.tick, zone, kind, answer))
                return answer

            def probe(self, zone):
                answer = cloud.probe(zone)
                calls.append((seen.tick, zone, "probe", answer))
                return answer

            def terminate(self):
                calls.append((seen.tick, "terminate"))
                cloud.terminate()

        self.policy.step(self.observation(seen), Cloud())


@st.composite
def markets(draw):
    zones, ticks = draw(st.integers(1, 3)), draw(st.integers(30, 80))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    flips = generator.random((zones, ticks)) < 0.15
    up = (np.cumsum(flips, axis=1) + generator.integers(0, 2, (zones, 1))) % 2
    spot = np.repeat(generator.uniform(0.5, 2.0, (zones, ticks // 10 + 1)), 10, axis=1)[:, :ticks]
    return up, spot


def job_for(up, slack=1.4):
    ticks = up.shape[1]
    return task(ticks / slack, ticks, 1.2, gb=20)


@GATE
@given(markets())
def test_it_never_misses(market):
    up, spot = market
    window = trace(up, spot).window(0, up.shape[1])
    for slack in (1.06, 1.4, 3.0):
        ticks = up.shape[1]
        work = min(ticks / slack, ticks - 3.2)  # two ticks more than one launch on demand takes
        assert play(online.make(), task(work, ticks, 1.2, gb=20), window).finished


@settings(GATE, max_examples=6)
@given(markets(), st.sampled_from([0.3, 2.5]))
def test_it_never_misses_with_several_kinds_of_machine(market, speed):
    up, spot = market
    ticks = up.shape[1]
    window = trace(up, spot, speed=(1.0, speed, 1.7)[: len(up)]).window(0, ticks)
    for slack in (1.06, 1.4, 3.0):
        assert play(online.make(), task(min(ticks / slack, ticks - 3.2), ticks, 1.2, gb=20), window).finished


def test_a_more_expensive_machine_that_is_faster_by_more_is_chosen():
    window = trace([[1] * 60, [1] * 60], [[1.0] * 60, [2.0] * 60], speed=(1.0, 3.0)).window(0, 60)
    done = play(online.make(), task(30, 60, 1.2), window)
    assert {place[0] for place in done.track} == {1}
    assert done.ticks_used == 12  # 30 ticks of work at three times the speed, and the overhead


@GATE
@given(markets(), st.integers(5, 25), st.integers(0, 10**6))
def test_a_poisoned_future_changes_nothing(market, cut, seed):
    up, spot = market
    other = np.random.default_rng(seed)
    later_up, later_spot = up.copy(), spot.copy()
    later_up[:, cut:] = other.integers(0, 2, later_up[:, cut:].shape)
    later_spot[:, cut:] = other.uniform(0.1, 9.0, later_spot[:, cut:].shape)
    runs = []
    for rows, prices in ((up, spot), (later_up, later_spot)):
        watched = Recorder(online.make())
        play(watched, job_for(up), trace(rows, prices).window(0, up.shape[1]))
        runs.append([call for call in watched.calls if call[0] < cut])
    assert runs[0] == runs[1]


def test_the_same_world_gives_the_same_run():
    up = np.array([[1, 1, 0, 0, 1, 1, 1, 0] * 6, [0, 1, 1, 1, 0, 0, 1, 1] * 6])
    window = trace(up, [[1.0] * 48, [1.1] * 48]).window(0, 48)
    assert play(online.make(), job_for(up), window) == play(online.make(), job_for(up), window)


def test_only_the_protocols_attributes_are_read():
    fields = {
        "job": ("work_hours", "deadline_hours", "restart_overhead_hours", "checkpoint_gb"),
        "seen": (
            *("tick", "elapsed_hours", "ticks_left", "done_hours", "running"),
            *("overhead_left_hours", "preempted", "spot_usd_per_hour", "checkpoint_zone"),
        ),
    }

    def only(kind):
        return lambda whole: SimpleNamespace(**{name: getattr(whole, name) for name in fields[kind]})

    up = np.array([[1, 1, 0, 1] * 10])
    watched = Recorder(online.make(), only("job"), only("seen"))
    assert play(watched, job_for(up), trace(up).window(0, 40)).finished


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"speed": (0.0,)}, "a positive speed"),
        ({"speed": (1.0, 1.0)}, "a positive speed"),
        ({"on_demand_usd_per_hour": ()}, "a market needs pools"),
        ({"egress_usd_per_gb": ((0, 0), (0, 0))}, "a market needs pools"),
        ({"tick_hours": 0}, "a tick must be longer than 0 h"),
        ({"on_demand_usd_per_hour": (float("nan"),)}, "on-demand price"),
    ],
)
def test_a_market_that_cannot_be_played_is_refused_at_the_start(changes, named):
    job = SimpleNamespace(work_hours=10.0, deadline_hours=20.0, restart_overhead_hours=0.2, checkpoint_gb=50.0)
    good = {"zones": ("a",), "on_demand_usd_per_hour": (3.0,), "egress_usd_per_gb": ((0,),), "tick_hours": 0.25}
    with pytest.raises(ValueError, match=named):
        online.make().start(job, SimpleNamespace(**good | changes))


def test_what_make_refuses():
    with pytest.raises(ValueError, match="unknown policy 'fast'; known: deadline, budget"):
        online.make("fast")


def test_the_adapter_holds_no_rule_of_its_own():
    """It compares only with None and with names of actions and kinds, and neither orders nor computes with what it saw
    but for the work left."""
    tree = ast.parse(inspect.getsource(online))
    names = {"SPOT", "ON_DEMAND", "NAME", "BUDGET", "KNOWN", "stay", "wait", "spot"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            (right,) = node.comparators
            named = right.id if isinstance(right, ast.Name) else getattr(right, "value", right)
            about_names = isinstance(node.ops[0], ast.Eq | ast.NotIn) and named in names
            assert isinstance(node.ops[0], ast.Is | ast.IsNot) or about_names, ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"min", "max", "sorted", "abs", "round", "sum"}, ast.unparse(node)
    computed = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    arithmetic = [ast.unparse(node) for node in computed if not isinstance(node.op, ast.BitOr)]  # `|` between types
    assert sorted(arithmetic) == sorted(
        [
            "np.array(market.egress_usd_per_gb, dtype=float) * float(job.checkpoint_gb)",
            "self._work_h - float(seen.done_hours)",
            "(1.0,) * len(on_demand_usd)",
        ]
    )


@pytest.mark.parametrize("cheap_ticks", [0, 2])
@pytest.mark.parametrize("expensive", [5.0, 50.0])
def test_spot_above_on_demand_is_not_paid(cheap_ticks, expensive):
    ticks = 60
    prices = [[0.3] * cheap_ticks + [expensive] * (ticks - cheap_ticks)]
    window = trace([[1] * ticks], prices, on_demand=1.0, tick_ms=3_600_000).window(0, ticks)
    done = play(online.make(), task(20, ticks, 0.2, tick_ms=3_600_000), window)
    assert done.finished
    assert done.usd <= 21.0
    assert done.spot_usd == pytest.approx(0.3 * cheap_ticks)


@pytest.mark.parametrize("cheap", [0, 2])
@pytest.mark.parametrize("on_demand", [1.0, (1.0, 1.0, 1.02), (1.02, 1.0, 1.0)])
def test_a_large_checkpoint_does_not_keep_a_job_from_the_cheap_region(cheap, on_demand):
    """On-demand is sold in both regions: to start in either costs no egress later."""
    ticks = 120
    prices = [[0.3 if zone == cheap else 0.55] * ticks for zone in range(3)]
    window = trace([[1] * ticks, [0] * ticks, [1] * ticks], prices, on_demand).window(0, ticks)
    done = play(online.make(), task(60, ticks, 0.6, gb=1000), window)
    assert {place[0] for place in done.track} == {cheap}
    assert done.egress_usd == 0.0


@GATE
@given(st.integers(1, 3), st.permutations((0.3, 0.36, 0.8)), st.floats(0, 4000), st.floats(1.1, 3.0))
def test_where_only_spot_prices_differ_a_job_stays_where_spot_costs_least(zones, spot, gb, slack):
    """Whatever the order of the zones, the size of the checkpoint and the time to spare are."""
    ticks, cheap = 90, int(np.argmin(spot[:zones]))
    window = trace([[1] * ticks] * zones, [[usd] * ticks for usd in spot[:zones]], 1.0).window(0, ticks)
    done = play(online.make(), task(ticks / slack, ticks, 0.6, gb=gb), window)
    assert {place[0] for place in done.track} == {cheap}
    assert done.on_demand_usd == 0.0


@pytest.mark.parametrize("expensive", [1.0, 20.0, 100.0, 1e5])
def test_an_on_demand_price_that_nobody_would_pay_changes_nothing(expensive):
    ticks = 60
    draw = np.random.default_rng(3)
    up = (np.cumsum(draw.random((2, ticks)) < 0.15, axis=1) + 1) % 2
    jobs = [
        play(
            online.make(),
            task(20, ticks, 0.2),
            trace(up, [[0.3] * ticks, [0.35] * ticks], (1.0, each)).window(0, ticks),
        )
        for each in (1.0, expensive)
    ]
    assert jobs[0].usd == pytest.approx(jobs[1].usd)


@pytest.mark.parametrize("work", [12, 36])
def test_all_zones_are_tried_before_on_demand_is_bought(work):
    """A launch that finds no capacity is free. The six cheapest zones, as many as a table considers, have none."""
    ticks = work * 3 // 2 + 2
    up = [[0] * ticks] * 6 + [[1] * ticks] * 6
    prices = [[0.2] * ticks] * 6 + [[0.25] * ticks] * 6
    few = trace(up[:2], prices[:2], on_demand=1.0, tick_ms=300_000)
    zones = tuple(f"us-east-1{letter}" for letter in "abcdefghijkl")
    known, filled = np.ones((12, ticks), np.bool_), np.zeros((12, ticks), np.bool_)
    many = replace(
        few,
        zones=zones,
        capacity=np.array(up, np.int64),
        spot=np.array(prices),
        on_demand=np.ones(12),
        known=known,
        filled=filled,
    )
    done = play(online.make(), task(work, ticks, 1.2, tick_ms=300_000), many.window(0, ticks))
    assert done.finished
    assert done.launches == 1
    assert done.on_demand_usd == 0.0


@pytest.mark.parametrize("gb", [100, 300, 1000])
def test_egress_is_not_paid_over_and_over(gb):
    """Two zones, in each of two regions, up in alternate hours: to follow them pays for the way 19 times."""
    ticks = 6 * 24
    here = (np.arange(ticks) // 6) % 2 == 0
    window = trace([here, [0] * ticks, ~here], 0.9).window(0, ticks)
    job = task(6 * 16, ticks, 1.2, gb=gb)
    done = play(online.make(), job, window)
    assert done.finished
    assert done.usd <= 49.0  # 16 h 12 min on demand, in whole ticks
    assert done.egress_usd <= 0.1 * done.usd
    assert done.usd <= play(Daily(), job, window).usd


def test_a_price_about_that_of_on_demand_does_not_make_it_flap():
    ticks = 60
    window = trace([[1] * ticks], [[0.98, 1.02] * 30], on_demand=1.0, tick_ms=3_600_000).window(0, ticks)
    done = play(online.make(), task(20, ticks, 0.2, tick_ms=3_600_000), window)
    assert done.launches <= 2
    assert done.usd <= 21.5


@GATE
@given(markets(), st.integers(0, 10**6), st.floats(1.1, 3.0))
def test_it_never_costs_more_than_on_demand_but_for_restarts(market, seed, slack):
    """Where zones differ in spot alone: the job on demand, and for each launch at most two restarts and two ticks."""
    up, _ = market
    ticks = up.shape[1]
    spot = np.random.default_rng(seed).uniform(0.2, 12.0, up.shape)
    work = min(ticks / slack, ticks - 3.2)
    done = play(online.make(), task(work, ticks, 1.2), trace(up[:2], spot[:2]).window(0, ticks))
    assert done.finished
    assert done.usd <= 3.0 / 6 * (work + (1 + done.launches) * (2 * 1.2 + 2))
