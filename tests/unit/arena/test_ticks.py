"""The tick clock: what is billed, what is lost, and what a policy may not do."""

from __future__ import annotations

import pytest

from orchestrator.arena.protocol import ON_DEMAND, SPOT
from orchestrator.arena.ticks import PolicyFailed, play
from orchestrator.errors import SpecError
from tests.unit.arena.small_markets import task, trace

TICK_H = 1 / 6


class Script:
    """Follows a script: a list of functions of (observation, cloud), one per tick."""

    def __init__(self, *acts):
        self.acts, self.seen = acts, []

    def start(self, job, market):
        self.job, self.market = job, market

    def step(self, observation, cloud):
        self.seen.append(observation)
        if observation.tick < len(self.acts) and self.acts[observation.tick] is not None:
            self.acts[observation.tick](cloud)


def launch(zone, kind=SPOT):
    return lambda cloud: cloud.try_launch(zone, kind)


def test_a_policy_reaches_what_it_may_call_and_nothing_else():
    class Nosy(Script):
        def step(self, observation, cloud):
            self.names = {name for name in dir(cloud) if not name.startswith("_")}

    nosy = Nosy()
    play(nosy, task(2, 5, 0.5), trace([[1] * 5]).window(0, 5))
    assert nosy.names == {"try_launch", "probe", "terminate"}


def test_the_reported_speed_is_the_speed_played():
    script = Script(launch(1))
    done = play(script, task(2, 4, 0), trace([[1] * 4] * 2, speed=(1.0, 1.23456)).window(0, 4))
    assert script.market.speed == (1.0, 1.235)
    assert script.seen[1].done_hours == pytest.approx(1.235 * TICK_H)
    assert done.finished
    with pytest.raises(SpecError, match=r"speed: us-east-1b has 0\.0004"):
        play(Script(), task(2, 4, 0), trace([[1] * 4] * 2, speed=(1.0, 0.0004)).window(0, 4))


def test_whole_ticks_are_billed_and_the_overhead_comes_first():
    script = Script(launch(0))
    done = play(script, task(2, 5, 0.5), trace([[1] * 5]).window(0, 5))
    assert done.finished
    assert done.ticks_used == 3  # 0.5 of overhead and 2 of work
    assert done.usd == pytest.approx(3 * TICK_H)
    assert done.useful == pytest.approx(2 / 3)
    assert [seen.overhead_left_hours for seen in script.seen] == pytest.approx([0, 0, 0])
    assert [seen.done_hours for seen in script.seen] == pytest.approx([0, 0.5 * TICK_H, 1.5 * TICK_H])
    assert [seen.ticks_left for seen in script.seen] == [5, 4, 3]


def test_a_preemption_loses_the_machine_and_no_progress():
    script = Script(launch(0), None, launch(1), None)
    done = play(script, task(2, 5, 0.5), trace([[1, 1, 0, 0, 0], [1] * 5], spot=[[1] * 5, [2] * 5]).window(0, 5))
    assert [seen.preempted for seen in script.seen] == [False, False, True]
    assert script.seen[2].running is None
    assert script.seen[2].checkpoint_zone == 0
    assert (done.preemptions, done.launches, done.moves) == (1, 2, 1)
    assert done.usd == pytest.approx((1 + 1 + 2) * TICK_H)  # 0.5 + 1 + 0.5 of work
    assert done.ticks_used == 3


def test_egress_is_paid_when_a_launch_is_elsewhere():
    window = trace([[1] * 6, [1] * 6, [1] * 6]).window(0, 6)
    done = play(Script(launch(0), launch(1), launch(2), launch(2)), task(2, 6, 0.5, gb=100), window)
    assert done.egress_usd == pytest.approx(100 * 0.02)  # free inside us-east-1
    assert done.moves == 2
    assert done.launches == 3  # asking for what already runs is none


def test_a_failed_launch_is_free_and_keeps_what_runs():
    window = trace([[1] * 4, [0] * 4]).window(0, 4)
    done = play(Script(launch(0), launch(1)), task(2, 4, 0.5), window)
    assert done.launches == 1
    assert done.track == ((0, SPOT),) * 3


def test_a_probe_costs_a_minute_only_where_it_finds_capacity():
    window = trace([[1] * 4, [0] * 4, [1] * 4], spot=[[1] * 4, [5] * 4, [6] * 4]).window(0, 4)
    found = []

    def probes(cloud):
        cloud.try_launch(0, SPOT)
        found.extend(cloud.probe(zone) for zone in (0, 1, 2))

    done = play(Script(probes), task(2, 4, 0.5), window)
    assert found == [True, False, True]
    assert done.probe_usd == pytest.approx(6 / 60)


def test_terminated_is_not_billed_and_time_can_run_out():
    done = play(
        Script(launch(0, ON_DEMAND), lambda cloud: cloud.terminate()), task(2, 4, 0), trace([[0] * 4]).window(0, 4)
    )
    assert not done.finished
    assert done.ticks_used == 4
    assert done.on_demand_usd == done.usd == pytest.approx(3 * TICK_H)
    assert done.track == ((0, ON_DEMAND), None, None, None)


def both(*acts):
    def act(cloud):
        for one in acts:
            one(cloud)

    return act


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (both(launch(0), launch(1)), "launched after it had launched"),
        (both(launch(0), lambda cloud: cloud.terminate()), "terminated after it had launched"),
        (launch(2), "used the zone 2; there are 2"),
        (launch("us-east-1a"), "used the zone 'us-east-1a'"),
        (launch(0, "reserved"), "'reserved'"),
        (lambda cloud: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_nonsense_is_named_with_tick_and_trace(act, message):
    with pytest.raises(PolicyFailed, match=message) as error:
        play(Script(None, act), task(2, 4), trace([[1] * 4, [1] * 4]).window(0, 4))
    assert "tick 1 of small" in str(error.value)


def test_a_deadline_before_the_work_could_be_done_is_refused():
    with pytest.raises(SpecError, match="is too short"):
        task(4, 4, 0.5)
    with pytest.raises(SpecError, match="the window has 3 of 4 ticks"):
        play(Script(), task(2, 4), trace([[1] * 3]).window(0, 3))
