"""Two control planes on one store: one acts, the other stands by, and what was deposed writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from orchestrator.errors import NotLeaderError
from orchestrator.model import STEP_ORDER, Job, Step
from providers.fake import Fault
from tests.rig import Killed, Nap
from tests.sim.harness import RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


def everything(home: SimulatedInstallation) -> object:
    return home.read(
        lambda tx: (tx.jobs(), tx.runs(), tx.migrations(), tx.events(), tx.entries(), tx.polls(), tx.perf())
    )


def depose(home: SimulatedInstallation) -> None:
    """Another control plane on the same store takes over from one that has fallen asleep."""
    home.deposed = home.plane  # type: ignore[attr-defined]
    home.take_over()


def test_a_second_control_plane_stands_by_while_the_first_one_acts(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    standby = home.open_store()
    for _ in range(20):
        home.tick()
        assert standby.campaign("standby") is None
    assert home.job(job).state == "running"


def test_a_deposed_leader_changes_nothing(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    depose(home)
    home.ask("migrate", job, offer_id=RESERVE.id)
    before, bills = everything(home), len(home.cloud.bills())
    for _ in range(3):
        with pytest.raises(NotLeaderError):
            home.deposed.tick()  # type: ignore[attr-defined]
        home.clock.advance(1)
    assert everything(home) == before
    assert len(home.cloud.bills()) == bills
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


@pytest.mark.parametrize("step", [step for step in STEP_ORDER if step is not Step.DONE])
def test_a_leader_that_takes_over_in_the_middle_of_a_move_completes_it(home: SimulatedInstallation, step: Step) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    home.faults.inject("launch", Fault.NO_ANSWER)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, step)
    depose(home)
    home.settle()
    assert home.job(job).state == "finished"
    assert RESERVE.id in [run.offer_id for run in home.runs(job) if run.training_from_ms is not None]
    check_truth(home)


def just_before_the_fence(home: SimulatedInstallation, what: Callable[[], None]) -> None:
    """Let `what` happen while the control plane that is about to fence sleeps: it has looked at everything already."""
    home.injector.sleep_when = "before link fence".__eq__
    home.until(lambda: home.asleep is not None)
    nap, home.asleep = home.asleep, None
    what()
    assert nap is not None
    assert nap.go()
    nap.value()


def until_cutover(home: SimulatedInstallation) -> Job:
    """A job that trains, and is about to be handed over to another machine."""
    job = home.submit(steps=260)
    home.until_step(job, 10)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, Step.CUTOVER)
    return job


def test_a_control_plane_replaced_just_before_it_fences_cannot_fence_when_it_resumes(
    home: SimulatedInstallation,
) -> None:
    job = until_cutover(home)

    def another_gives_it_up() -> None:
        depose(home)
        home.cloud.crash(home.machine(home.runs(job)[-1]).id)
        home.until_step(job, 200)

    with pytest.raises(NotLeaderError):
        just_before_the_fence(home, another_gives_it_up)
    run = home.current(job)
    assert run is not None
    assert run.generation == 1
    assert run.last_step >= 200
    home.settle()
    assert home.job(job).state == "finished"
    assert [run.repeated_steps for run in home.runs(job)] == [0] * len(home.runs(job))
    check_truth(home)


def test_a_source_that_waited_in_vain_keeps_the_job_and_the_late_fence_is_refused(
    home: SimulatedInstallation,
) -> None:
    job = until_cutover(home)
    just_before_the_fence(home, lambda: home.clock.advance(120.0))
    home.settle()
    assert home.job(job).state == "finished"
    aborted = [each for each in home.migrations(job) if each.step is Step.ABORTED]
    assert [each.error for each in aborted] == ["the old machine resumed training before the handover"]
    assert all(run.repeated_steps == 0 for run in home.runs(job))
    check_truth(home)


def test_a_move_that_another_control_plane_completed_meanwhile_stays_complete(home: SimulatedInstallation) -> None:
    job = until_cutover(home)

    def another_completes_it() -> None:
        depose(home)
        home.until(lambda: home.migrations(job)[1].step is Step.DONE)

    with pytest.raises(NotLeaderError):
        just_before_the_fence(home, another_completes_it)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["moved", "finished"]
    assert all(run.repeated_steps == 0 for run in home.runs(job))
    check_truth(home)


def test_after_a_voided_generation_the_next_one_is_newer(home: SimulatedInstallation) -> None:
    job = until_cutover(home)
    just_before_the_fence(home, lambda: home.clock.advance(120.0))
    home.until(lambda: home.migrations(job)[1].step is Step.ABORTED)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.DONE)
    assert [each.generation for each in home.migrations(job)] == [1, 2, 3]
    home.settle()
    check_truth(home)


MOMENTS = 150  # edges of a short history with one move; the gate takes a sample
GATE_EVERY = 17


def sleeps_at(home: SimulatedInstallation, edge: int) -> Nap[bool] | None:
    """Play a job that is moved once, until the control plane has fallen asleep at so many edges from now, in the middle
    of a pass; None if the job is over before."""
    job = home.submit(steps=16)
    home.until_step(job, 3)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.injector.count, home.injector.sleep_at = 0, edge
    home.until(lambda: home.asleep is not None or home.settled)
    nap, home.asleep = home.asleep, None
    return nap


@pytest.mark.parametrize("edge", range(1, MOMENTS, GATE_EVERY))
@pytest.mark.parametrize("acts_s", [0.0, 40.0], ids=["at once", "much later"])
def test_a_leader_that_is_deposed_in_the_middle_of_a_pass_can_write_nothing_more(
    home: SimulatedInstallation, edge: int, acts_s: float
) -> None:
    nap = sleeps_at(home, edge)
    if nap is not None:
        home.take_over()
        home.run_for(acts_s)
        with suppress(NotLeaderError, Killed):
            assert nap.go()
            nap.value()
    home.settle()
    (job,) = home.read(lambda tx: tx.jobs())
    assert job.state == "finished"
    check_truth(home)
