"""A machine fetches what it will restore before it is needed: training elsewhere goes on meanwhile, within reason."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine.migration.bring_up import FETCHING_S
from orchestrator.engine.migration.timeouts import READY_MARKET_S
from orchestrator.model import Job, Step
from tests.sim.harness import EXPENSIVE, FINE_STRIDE_S, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


def moving(home: SimulatedInstallation, fetches_s: float, steps: int = 150) -> Job:
    """A job whose next machine is prepared, and fetches."""
    home.site.fetches_s = fetches_s
    job = home.submit(steps=steps)
    home.until_step(job, 6)
    home.ask("migrate", job, offer_id=EXPENSIVE.id)
    home.until_second_move(job, Step.READY)
    home.run_for(5)
    return job


def step_of(home: SimulatedInstallation, job: Job) -> Step:
    return home.migrations(job)[-1].step


def test_training_goes_on_while_the_next_machine_fetches(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = moving(home, 60)
    before = home.runs(job)[0].last_step
    home.run_for(40)
    assert step_of(home, job) is Step.READY
    assert home.runs(job)[0].last_step > before + 20
    home.run_for(30)
    assert home.runs(job)[-1].offer_id == EXPENSIVE.id
    assert home.runs(job)[-1].state == "training"
    assert any("it has already fetched 250.0 MB of the checkpoint" in event.message for event in home.events(job))
    home.settle()
    check_truth(home)


def test_a_machine_that_is_going_to_be_lost_is_left_at_once(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = moving(home, 1e9)
    assert step_of(home, job) is Step.READY
    home.cloud.preempt(home.machine(home.runs(job)[0]).id, notice_s=30.0)
    home.run_for(15)
    assert [run.repeated_steps for run in home.runs(job)] == [0, 0]
    assert home.runs(job)[-1].state == "training"
    home.settle()
    check_truth(home)


def test_nobody_waits_for_ever(home: SimulatedInstallation) -> None:
    job = moving(home, 1e9, steps=800)
    home.run_for(FETCHING_S - 60)
    assert step_of(home, job) is Step.READY
    home.run_for(120)
    assert home.runs(job)[-1].state == "training"
    assert not any("already" in event.message for event in home.events(job))
    home.settle()
    check_truth(home)


def test_a_machine_that_falls_silent_meanwhile_is_given_up(home: SimulatedInstallation) -> None:
    job = moving(home, 1e9, steps=2000)
    home.site.fall_silent(home.runs(job)[-1].id)
    home.until(lambda: home.migrations(job)[-1].step is Step.ABORTED, limit_s=READY_MARKET_S + 60, stride_s=5.0)
    assert home.runs(job)[0].state == "training"
    home.settle(limit_s=4000, stride_s=10.0)
    check_truth(home)
