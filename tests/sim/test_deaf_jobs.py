"""Jobs that reach no step boundary: they heed neither stop nor hold; each order about them ends in a stated time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.engine.inputs.reserves import STOP_TIMEOUT_WALL_S
from orchestrator.engine.migration.timeouts import QUIESCE_S
from orchestrator.model import Job, Step
from providers.fake import Fault
from tests.sim.harness import RESERVE, SimulatedInstallation, check_truth


@pytest.fixture
def deaf(home: SimulatedInstallation) -> Job:
    """A job that trains and has a checkpoint, and hears nothing from now on."""
    job = home.submit(steps=600)
    home.until_step(job, 12)
    home.site.ignore_control(job.id)
    return job


def took_s(home: SimulatedInstallation, over: Callable[[], bool]) -> float:
    began_s = home.clock.monotonic_s()
    home.until(over)
    return home.clock.monotonic_s() - began_s


def test_a_pause_that_its_trainer_ignores_ends_at_the_last_checkpoint_after_the_stated_time(
    home: SimulatedInstallation, deaf: Job
) -> None:
    home.ask("pause", deaf)
    waited_s = took_s(home, lambda: home.job(deaf).state == "paused")
    assert STOP_TIMEOUT_WALL_S <= waited_s < STOP_TIMEOUT_WALL_S + 5
    assert "it did not stop when asked" in home.events(deaf, "job.paused")[0].message
    home.settle()
    assert not home.site.training()
    ledger, billed = home.books()
    assert ledger == billed
    home.ask("resume", deaf)
    home.until_step(deaf, home.runs(deaf)[0].last_step + 1)
    home.ask("cancel", deaf)
    home.settle()
    check_truth(home)


def test_a_cancel_waits_for_no_trainer(home: SimulatedInstallation, deaf: Job) -> None:
    home.ask("cancel", deaf)
    assert took_s(home, lambda: home.job(deaf).state == "cancelled") < 5
    assert took_s(home, lambda: not home.site.training()) < 5
    home.settle()
    check_truth(home)


def test_a_move_that_its_trainer_ignores_is_aborted_after_the_stated_time_and_the_job_keeps_training(
    home: SimulatedInstallation, deaf: Job
) -> None:
    source = home.current(deaf)
    assert source is not None
    home.ask("migrate", deaf, offer_id=RESERVE.id)
    home.until_second_move(deaf, Step.CHECKPOINT)
    waited_s = took_s(home, lambda: home.migrations(deaf)[-1].step is Step.ABORTED)
    assert QUIESCE_S <= waited_s < QUIESCE_S + 5
    assert "within 60 s" in home.events(deaf, "migration.aborted")[0].message
    now = home.current(deaf)
    assert now is not None
    assert now.id == source.id
    home.until(lambda: sum(instance.alive for instance in home.cloud.instances()) == 1)
    home.ask("cancel", deaf)
    home.settle()
    check_truth(home)


def test_its_trainer_is_ended_also_where_its_machine_cannot_be(home: SimulatedInstallation, deaf: Job) -> None:
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 40)
    home.ask("cancel", deaf)
    assert took_s(home, lambda: not home.site.training()) < 10
    home.settle()
    check_truth(home)
