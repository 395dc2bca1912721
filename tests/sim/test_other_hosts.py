"""Machines that do not have this host's folders: what they are told, and which jobs they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.runtime import RunSpec
from orchestrator.model import JobSpec, Setup
from orchestrator.nodes.messages import JobFiles
from providers import traits
from tests.sim.harness import SimulatedInstallation, train_spec
from trainers.spec import SetupSpec


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))


def test_a_machine_of_another_host_is_told_where_its_files_are_and_no_folder_of_this_one(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare: Callable[..., None] = home.site.prepare
    asked: list[tuple[SetupSpec | None, JobFiles | None]] = []
    started: list[RunSpec] = []

    def noted(run_id: str, token: str, setup: SetupSpec | None, secrets: Any, files: JobFiles | None) -> None:
        asked.append((setup, files))
        prepare(run_id, token, setup, secrets, files)

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
