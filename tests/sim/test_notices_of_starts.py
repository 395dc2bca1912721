"""A notice for a machine on which a job starts is recorded within 3 s, and the start is given up, in each of its
steps."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest

from orchestrator.engine.calls import Place
from orchestrator.model import Step
from tests.rig.wires import Delay
from tests.sim.harness import SimulatedInstallation, check_truth

CLOUD, STORE = Delay(1.0, 1.0), Delay(0.025, 0.025)
STEPS = (Step.READY, Step.CHECKPOINT, Step.TRANSFER, Step.RESTORE, Step.VERIFY, Step.CUTOVER)
TICK_S = 0.25


def slow(home: SimulatedInstallation, place: Place, key: str) -> Delay:
    if home.wires.silent(place, key):
        return Delay(inf, inf)
    return CLOUD if place[0] == "fake" else STORE


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("moving", [False, True], ids=["first", "recovery"])
def test_a_notice_during_a_start_is_recorded_and_acted_on(
    home: SimulatedInstallation, step: Step, moving: bool
) -> None:
    job = home.submit(steps=60, retries=0)
    if moving:
        home.cloud.crash(home.machine(home.until_step(job, 13)).id)
        home.until(lambda: home.runs(job)[0].end is not None)
    vars(home.wires)["delay"] = partial(slow, home)
    number = 1 if moving else 0
    home.until(lambda: len(found := home.migrations(job)) > number and found[-1].step is step, stride_s=TICK_S)
    run = home.runs(job)[-1]
    at_s = home.clock.monotonic_s()
    home.cloud.preempt(home.machine(run).id, notice_s=600.0)
    home.until(lambda: bool(home.events(job, "instance.notice")), limit_s=10.0, stride_s=TICK_S)
    assert home.clock.monotonic_s() - at_s <= 3.0
    assert [event.run_id for event in home.events(job, "instance.notice")] == [run.id]
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=60.0, stride_s=TICK_S)
    points = home.read(lambda tx: tx.availability(0, home.clock.now_ms()))
    assert [point.offer_id for point in points if point.kind == "notice"] == [run.offer_id], "counted twice"
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)
