"""After a loss, a job is where its newest checkpoint is; and a checkpoint that is missing stops it."""

from __future__ import annotations

import shutil

import pytest

from orchestrator.engine.inputs.snapshot import inputs
from orchestrator.model import Job
from orchestrator.services.jobs.current import status
from tests.sim.harness import FINE_STRIDE_S, SimulatedInstallation, check_truth


def done(home: SimulatedInstallation, job: Job) -> int:
    """The steps that a user is shown, which are those that decisions take to be done."""
    shown = status(home.installation, job.id).job.step
    found = home.read(lambda tx: inputs(tx, home.clock.now_ms(), home.config))
    assert [demand.done_steps for demand in found.demands] in ([], [shown])
    return shown


def test_a_job_that_lost_its_machine_has_done_what_it_saved(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=60)
    run = home.until_step(job, 14)
    home.until(lambda: home.runs(job)[0].saved_step == 10)
    assert done(home, job) == home.runs(job)[0].last_step >= 14
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: home.runs(job)[0].end is not None)
    assert home.runs(job)[0].last_step > done(home, job) == 10
    home.until(lambda: len(home.runs(job)) > 1 and home.runs(job)[1].training_from_ms is not None)
    assert done(home, job) == home.runs(job)[1].last_step
    home.settle()
    assert done(home, job) == 60
    check_truth(home)


@pytest.mark.parametrize("put_back", [True, False])
def test_a_job_whose_checkpoints_are_missing_pauses_and_says_from_where_it_would_go_on(
    home: SimulatedInstallation, put_back: bool
) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 12)
    home.ask("pause", job)
    home.until_state(job, "paused")
    at = home.runs(job)[0].last_step
    folder = home.checkpoints.root / job.id
    shutil.move(folder, folder.with_name("elsewhere"))
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    said = home.events(job, "job.paused")[-1].message
    assert said.startswith("paused without a checkpoint: ")
    assert f"its checkpoint of step {at} is missing from {home.checkpoints.root}: there is none" in said
    assert "without them, it goes on from step 0" in said
    assert done(home, job) == 0
    if put_back:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(folder.with_name("elsewhere"), folder)
    home.ask("resume", job)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[-1].start_step == (at if put_back else 0)
