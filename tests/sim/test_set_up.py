"""Set-ups of environments: their time is allowed for and billed, and what fails in one costs the job and no offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from orchestrator.engine.inputs import latencies
from orchestrator.engine.migration import timeouts, wasted
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, JobSpec, Setup, Step
from orchestrator.perf import kind_of
from tests.sim.harness import EXPENSIVE, SimulatedInstallation, check_truth, train_spec
from trainers.errors import SetupError

FAILED = SetupError("the set-up failed: `pip install` exited with status 1: no such package", hint="correct it")
SETUP = Setup(command="pip install -r requirements.txt")


def submit(home: SimulatedInstallation, steps: int = 40, **fields: int) -> Job:
    return home.submit_job(JobSpec("job", replace(train_spec(steps), setup=SETUP), **fields))


def run_under_setup(home: SimulatedInstallation, job: Job) -> str:
    """The run whose environment is being set up now."""
    home.until(lambda: any(each.step is Step.READY for each in home.migrations(job)))
    home.run_for(20.0)
    (migration,) = (each for each in home.migrations(job) if each.step is Step.READY)
    return migration.target_run_id


def blamed(home: SimulatedInstallation, job: Job) -> tuple[tuple[str, str], ...]:
    """The offers that the job must not use."""
    now_ms = home.clock.now_ms()
    return home.read(lambda tx: wasted.excluded(tx.events_of([job.id], wasted.EXCLUDING)[job.id], now_ms))


def test_a_set_up_may_take_longer_than_a_machine_and_is_billed_as_provisioning(home: SimulatedInstallation) -> None:
    home.site.set_up_takes(3 * timeouts.READY_S)
    job = submit(home)
    home.until(lambda: home.job(job).state == "finished", limit_s=2000.0, stride_s=5.0)
    (run,) = home.runs(job)
    assert run.training_from_ms is not None
    assert run.billed_from_ms is not None
    assert run.training_from_ms - run.billed_from_ms >= 3 * timeouts.READY_S * 1000
    assert run.setup_wall_s == 3 * timeouts.READY_S
    home.settle()
    check_truth(home)


def test_its_time_depends_on_the_job_and_is_not_a_measurement_of_machines(home: SimulatedInstallation) -> None:
    home.site.set_up_takes(240.0)
    job = submit(home, steps=60)
    home.until(lambda: home.job(job).state == "finished", limit_s=2000.0, stride_s=5.0)
    (run,) = home.runs(job)
    kind = kind_of(EXPENSIVE.gpu, EXPENSIVE.gpu_count)
    started = home.read(lambda tx: tx.runs_started("fake", 10))
    ((_, started_s),) = latencies._starts(started, lambda _: kind, 1.0)
    assert started_s < 60.0
    assert latencies.setup_s(home.config, job, [run]) == 240.0
    assert latencies.setup_s(home.config, job, []) > 0.0
    assert latencies.setup_s(home.config, home.submit("without"), [run]) == 0.0


def test_one_that_fails_costs_the_jobs_retries_and_blames_no_offer(home: SimulatedInstallation) -> None:
    home.site.set_up_takes(5.0, lambda _: f"no such package\n{FAILED}")
    job = submit(home, retries=2)
    home.until(lambda: home.job(job).state == "failed", limit_s=1000.0)
    assert len(home.runs(job)) == 3
    assert {run.end for run in home.runs(job)} == {"failed"}
    (event,) = home.events(job, "job.failed")
    assert str(FAILED) in event.message
    assert "after 3 attempts" in event.message
    assert blamed(home, job) == ()
    home.settle()
    check_truth(home)


def test_one_that_would_fail_on_every_machine_ends_the_job(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.site.set_up_takes(5.0, lambda _: "the code of this job is no longer in the store")
    reports = home.site.reports

    def permanent(run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        return {key: replace(each, permanent=each.setup_failed) for key, each in reports(run_ids).items()}

    monkeypatch.setattr(home.site, "reports", permanent)
    job = submit(home, retries=5)
    home.until(lambda: home.job(job).state == "failed", limit_s=1000.0)
    assert len(home.runs(job)) == 1
    assert blamed(home, job) == ()
    home.settle()
    check_truth(home)


def test_a_machine_that_is_lost_during_it_is_not_a_failure_of_the_job(home: SimulatedInstallation) -> None:
    home.site.set_up_takes(60.0)
    job = submit(home, retries=0)
    first = run_under_setup(home, job)
    (run,) = (each for each in home.runs(job) if each.id == first)
    home.cloud.preempt(home.machine(run).id)
    home.until(lambda: home.job(job).state == "finished", limit_s=2000.0, stride_s=5.0)
    assert home.read(lambda tx: tx.job_facts(job.id)).failures == 0
    home.settle()
    check_truth(home)


def test_a_control_plane_that_takes_over_lets_it_go_on(home: SimulatedInstallation) -> None:
    home.site.set_up_takes(60.0)
    job = submit(home)
    under = run_under_setup(home, job)
    home.take_over()
    home.until(lambda: home.job(job).state == "finished", limit_s=2000.0, stride_s=5.0)
    assert [run.id for run in home.runs(job)] == [under]
    home.settle()
    check_truth(home)


def test_a_move_whose_set_up_fails_leaves_the_job_where_it_trains(home: SimulatedInstallation) -> None:
    job = submit(home, steps=900, retries=0)
    first = home.until_step(job, 5)
    home.site.set_up_takes(5.0, lambda _: "no such package")
    home.reprice(EXPENSIVE.id, "0.10")
    home.until(lambda: bool(home.events(job, "migration.aborted")), limit_s=2000.0)
    current = home.current(job)
    assert current is not None
    assert current.id == first.id
    assert home.read(lambda tx: tx.job_facts(job.id)).failures == 0
    assert blamed(home, job) == ()
