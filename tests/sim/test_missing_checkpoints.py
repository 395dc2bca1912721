"""After a loss, a job is where its newest checkpoint is; and a checkpoint that is missing stops it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.inputs.snapshot import inputs
from orchestrator.model import Job, JobSpec
from orchestrator.nodes.unpacking import code_key
from orchestrator.services.caller import Caller
from orchestrator.services.checkpoints.elsewhere import elsewhere
from orchestrator.services.doctor.objects import store_root
from orchestrator.services.jobs import commands
from orchestrator.services.jobs.current import status
from orchestrator.store import FormerRoot
from tests.sim.harness import FINE_STRIDE_S, SimulatedInstallation, check_truth, train_spec


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
    assert said.endswith(
        f"its checkpoint of step {at} is missing from {home.checkpoints.root}, which has no checkpoint of this job. To "
        f"start it from step 0: tradewind resume {job.name}. If its checkpoints were moved away, put them back first"
    )
    assert done(home, job) == 0
    if put_back:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(folder.with_name("elsewhere"), folder)
    home.ask("resume", job)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[-1].start_step == (at if put_back else 0)


def test_a_job_that_reported_a_checkpoint_that_was_never_written_is_not_told_to_put_it_back(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 12)
    home.ask("pause", job)
    home.until_state(job, "paused")
    for each in (home.checkpoints.root / job.id / "manifests").iterdir():
        each.unlink()
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    said = home.events(job, "job.paused")[-1].message
    assert f"has no checkpoint of this job. To start it from step 0: tradewind resume {job.name}" in said
    assert "Put" not in said
    home.ask("resume", job)
    home.settle()
    assert home.runs(job)[-1].start_step == 0


def test_a_job_whose_newest_checkpoint_is_missing_says_which_one_is_left(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 12)
    home.ask("pause", job)
    home.until_state(job, "paused")
    at = home.runs(job)[0].last_step
    (newest,) = (home.checkpoints.root / job.id / "manifests").glob(f"*-{at}-*")
    newest.unlink()
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    said = home.events(job, "job.paused")[-1].message
    left = done(home, job)
    assert 0 < left < at
    assert f"its checkpoint of step {at} is missing from {home.checkpoints.root}: the newest one left" in said
    assert f"Put the checkpoints back, then run: tradewind resume {job.name} (without them, it continues" in said
    assert said.endswith(f"from step {left})")


def paused_and_moved(home: SimulatedInstallation, root: Path) -> Job:
    """A job that has saved checkpoints and is paused, and a control plane that was started with another store_root."""
    job = home.submit(steps=40)
    home.until_step(job, 12)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.run_for(10.0)
    with home.store.write() as tx:
        tx.add_former_root(FormerRoot(str(home.config.store_root), home.clock.now_ms()))
    home.config = replace(home.config, store_root=root)
    home.start()
    return job


def test_a_job_with_checkpoints_in_a_former_store_root_pauses_before_a_machine_is_rented(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    former = home.config.store_root
    job = paused_and_moved(home, tmp_path)
    other = home.submit("other", steps=10)
    ((words, _),) = elsewhere(home.installation)
    assert f"1 job that has not ended has checkpoints or code in {former}" in words
    assert words.endswith(f": {job.name}")
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    said = home.events(job, "job.paused")[-1].message
    assert f"its checkpoint of step {home.runs(job)[0].last_step} is in {former}/checkpoints/{job.id}" in said
    assert f"set store_root back to {former}" in said
    assert f"copy {former}/checkpoints/{job.id} to {tmp_path}/checkpoints/{job.id}" in said
    assert len(home.runs(job)) == 1, "a machine was rented for it"
    assert len(elsewhere(home.installation)) == 1
    home.config = replace(home.config, store_root=former)
    home.start()
    assert elsewhere(home.installation) == []
    home.ask("resume", job)
    home.until(lambda: [home.job(each).state for each in (job, other)] == ["finished", "finished"])
    home.settle()
    assert home.runs(job)[-1].start_step == home.runs(job)[0].last_step
    check_truth(home)


def test_a_job_whose_checkpoints_were_copied_to_the_new_store_root_goes_on(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    job = paused_and_moved(home, tmp_path)
    (tmp_path / "checkpoints").symlink_to(home.checkpoints.root)  # where the simulated trainers save
    assert elsewhere(home.installation) == []
    home.ask("resume", job)
    home.until_state(job, "finished")
    assert home.runs(job)[-1].start_step == home.runs(job)[0].last_step


@pytest.mark.parametrize("resumed", [False, True])
def test_a_job_with_checkpoints_in_a_store_root_that_is_gone_can_be_cancelled(
    home: SimulatedInstallation, tmp_path: Path, resumed: bool
) -> None:
    job = paused_and_moved(home, tmp_path)
    shutil.rmtree(home.checkpoints.root / job.id)
    if resumed:
        home.ask("resume", job)
        home.until(lambda: len(home.events(job, "job.paused")) == 2)
    home.ask("cancel", job)
    home.until_state(job, "cancelled")
    assert elsewhere(home.installation) == []


def test_a_job_that_is_resumed_without_the_checkpoints_of_a_former_store_root_begins_again(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    job = paused_and_moved(home, tmp_path)
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    home.ask("resume", job)
    home.until(lambda: len(home.runs(job)) == 2 and home.runs(job)[1].instance_id is not None)
    assert len(home.events(job, "job.paused")) == 2


@pytest.mark.parametrize("copied", [False, True])
def test_a_job_that_has_not_started_pauses_if_its_code_is_in_a_former_store_root(
    home: SimulatedInstallation, tmp_path: Path, copied: bool
) -> None:
    job = home.submit_job(JobSpec("job", replace(train_spec(20), code="0" * 64)))
    with home.store.write() as tx:
        tx.add_former_root(FormerRoot("s3://former", home.clock.now_ms() + 1))
    home.config = replace(home.config, store_root=tmp_path)
    home.checkpoints.root.mkdir(exist_ok=True)
    (tmp_path / "checkpoints").symlink_to(home.checkpoints.root)
    home.start()
    if copied:
        archive = tmp_path / home.installation.job_place(job.id) / code_key("0" * 64)
        archive.parent.mkdir(parents=True)
        archive.write_bytes(b"code")
        assert elsewhere(home.installation) == []
        home.until(lambda: bool(home.runs(job)))
        return
    home.until_state(job, "paused")
    (said,) = home.events(job, "job.paused")
    assert f"its code is in s3://former/{home.installation.job_place(job.id)}" in said.message
    assert len(elsewhere(home.installation)) == 1
    home.ask("resume", job)
    home.until(lambda: bool(home.runs(job)))


def test_advice_names_a_job_by_its_id_where_another_has_its_name(home: SimulatedInstallation, tmp_path: Path) -> None:
    job = paused_and_moved(home, tmp_path)
    home.submit(job.name, steps=10)
    ((words, remedy),) = elsewhere(home.installation)
    assert words.endswith(f": {job.id}")
    assert f"`tradewind checkpoints ls {job.id}`" in remedy
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    assert f"tradewind resume {job.id} (" in home.events(job, "job.paused")[-1].message


def test_resume_does_not_promise_a_checkpoint_that_a_job_paused_without(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    job = paused_and_moved(home, tmp_path)
    caller = Caller("me")
    assert "resumes from its checkpoint" in commands.resume(home.installation, job.id, caller=caller).message
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    said = commands.resume(home.installation, job.id, caller=caller).message
    assert said == (
        f"{job.name} paused without a checkpoint; it resumes from one if there is one now, else from step 0, on the "
        "offer that is best now"
    )


def test_doctor_says_that_a_control_plane_still_uses_the_former_store_root(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 12)
    former = str(home.config.store_root)
    (home.installation.state_dir / "store-root").write_text(former)
    changed = replace(home.installation, config=replace(home.config, store_root=tmp_path))
    ((_, remedy),) = elsewhere(changed)
    assert f"the running control plane keeps using {former}, and the jobs pause after its next start" in remedy
    check = store_root(changed)
    assert (check.state, f"the running control plane uses {former}" in check.found) == ("warn", True)
