"""Machines that do not have this host's folders: what they are sent, and which jobs they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.migration.disk import disk_gb
from orchestrator.engine.runtime import RunSpec
from orchestrator.model import DataSource, JobSpec, Resources, Setup
from orchestrator.nodes.messages import JobFiles
from providers import traits
from providers.base import LaunchSpec
from providers.fake import FakeProvider, Fault
from providers.instance import InstanceState
from tests.sim.harness import SimulatedInstallation, check_truth, train_spec
from trainers.spec import SetupSpec


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))


def test_a_machine_of_another_host_is_given_the_place_of_its_files_and_no_folder_of_this_one(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare: Callable[..., None] = home.site.prepare
    asked: list[tuple[SetupSpec | None, JobFiles | None]] = []
    started: list[RunSpec] = []

    def noted(
        run_id: str, token: str, setup: SetupSpec | None, secrets: Any, files: JobFiles | None, **more: Any
    ) -> None:
        asked.append((setup, files))
        prepare(run_id, token, setup, secrets, files, **more)

    monkeypatch.setattr(home.site, "prepare", noted)
    monkeypatch.setattr(home.site, "start", started.append)
    train = replace(train_spec(), setup=Setup(command="true"), code="0" * 64)
    job = home.submit_job(JobSpec("job", train))
    home.until(lambda: bool(started))
    setup, files = asked[0]
    assert files == JobFiles(f"jobs/{home.installation.store.install_id}/{job.id}", "0" * 64)
    assert setup is not None
    assert (setup.root, setup.log, setup.workdir) == ("", "", "")
    assert [started[0].trainer[name] for name in ("control_dir", "output_dir", "workdir")] == ["", "", ""]


def test_a_job_whose_code_was_not_uploaded_gets_no_machine_there_and_says_what_to_do(
    home: SimulatedInstallation,
) -> None:
    job = home.submit_job(JobSpec("job", train_spec()))
    home.run_for(30.0)
    assert not home.cloud.instances()
    with home.installation.store.read() as tx:
        said = [event.message for event in tx.events(job_id=job.id)]
    assert any("submit the job again" in message for message in said)


def test_disks_have_room_for_the_data_and_checkpoints_of_a_job(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, asked = FakeProvider.launch, list[LaunchSpec]()

    def noted(provider: FakeProvider, spec: LaunchSpec) -> tuple[str, ...]:
        asked.append(spec)
        return launch(provider, spec)

    monkeypatch.setattr(FakeProvider, "launch", noted)
    data = (DataSource("/data", "/data", 7 << 30), DataSource("/more", "/more"))
    job = home.submit_job(JobSpec("job", replace(train_spec(steps=4000), code="0" * 64), data=data))

    def size_bytes() -> int:
        return home.read(lambda tx: tx.job_facts(job.id).checkpoint_bytes) or 0

    home.until(lambda: size_bytes() > 0)
    (run,) = home.runs(job)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: len(asked) == 2)
    first, second = asked
    assert first.disk_gb == 7, "the size of a checkpoint is not known yet"
    assert second.disk_gb == disk_gb(data, size_bytes()) > 7


def test_a_machine_that_cannot_be_used_is_ended_and_the_job_starts_elsewhere(home: SimulatedInstallation) -> None:
    why = "this machine has no Python 3.11 or newer"
    job = home.submit_job(JobSpec("job", replace(train_spec(), code="0" * 64)))
    home.until(lambda: bool(home.migrations(job)))
    (first,) = home.migrations(job)
    home.site.boot_errors[first.token] = why
    home.settle()
    assert home.job(job).state == "finished"
    assert home.migrations(job)[0].error == why
    events = home.read(lambda tx: [event.message for event in tx.events(job_id=job.id, kinds=("migration.aborted",))])
    assert events == [f"not started on {first.offer_id}: {why}; trying the next offer"]
    assert all(each.state is InstanceState.TERMINATED for each in home.cloud.instances())
    check_truth(home)


def test_machines_that_do_not_reach_one_another_are_all_ended_and_the_job_starts_elsewhere(
    home: SimulatedInstallation,
) -> None:
    why = "machine 1 (b, 10.0.0.2) cannot connect to machine 0 at 10.0.0.1:4000"
    job = home.submit_job(JobSpec("job", replace(train_spec(), code="0" * 64), resources=Resources(nodes=2)))
    home.until(lambda: bool(home.migrations(job)))
    (first,) = home.migrations(job)
    home.site.boot_errors[first.token] = why
    home.settle()
    assert home.job(job).state == "finished"
    assert [run.nodes for run in home.runs(job)] == [2, 2]
    assert home.migrations(job)[0].error == why
    assert all(each.state is InstanceState.TERMINATED for each in home.cloud.instances())
    check_truth(home)


def test_what_was_stored_for_a_machine_that_was_never_rented_is_deleted(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", Fault.CAPACITY)
    job = home.submit_job(JobSpec("job", replace(train_spec(), code="0" * 64)))
    home.until(lambda: len(home.migrations(job)) > 1)
    refused = home.migrations(job)[0]
    home.site._kept[refused.target_run_id] = refused.token  # as NodeRuntime notes for user data
    home.settle()
    home.until(lambda: refused.target_run_id not in home.site.known())


def test_a_machine_that_ended_because_it_cannot_be_used_is_not_just_gone(home: SimulatedInstallation) -> None:
    job = home.submit_job(JobSpec("job", replace(train_spec(), code="0" * 64)))
    home.until(lambda: any(each.state is InstanceState.RUNNING for each in home.cloud.instances()))
    (first,) = home.migrations(job)
    home.site.boot_errors[first.token] = "too little disk"
    home.cloud.crash(home.cloud.instances()[0].id)
    home.settle()
    assert home.migrations(job)[0].error == "too little disk"
    check_truth(home)
