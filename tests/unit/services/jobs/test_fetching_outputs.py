"""The outputs of jobs, brought to this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.errors import (
    NotFoundError,
    UsageError,
)
from orchestrator.installation import Installation
from orchestrator.model import Event
from orchestrator.services.jobs import fetch
from tests.unit.services.recorded_history import Past, submit_job


def test_fetch_of_a_job_without_outputs_says_so(installation: Installation, past: Past, tmp_path: Path) -> None:
    installation.output_dir(past.conv).mkdir(parents=True)  # as every trainer makes it
    with pytest.raises(NotFoundError, match="conv has written no outputs"):
        fetch.fetch(installation, "conv", tmp_path / "out")


def test_fetch_of_a_job_that_has_not_run_says_why_there_is_nothing(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"^lstm has not run yet: submitted, objective cheapest$") as waiting:
        fetch.fetch(installation, "lstm", tmp_path / "out")
    assert waiting.value.hint == "see why it waits: tradewind explain lstm"
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.set_job_facts(past.lstm, finished_at_ms=now)
        tx.set_job_state(past.lstm, "cancelled")
        tx.add_event(
            Event(id="ev_z", at_ms=now, kind="job.cancelled", message="too late", actor="me", job_id=past.lstm)
        )
    with pytest.raises(NotFoundError, match=r"^lstm never ran: too late$") as ended:
        fetch.fetch(installation, "lstm", tmp_path / "out")
    assert ended.value.hint == "see what happened: tradewind events lstm"
    assert not (tmp_path / "out").exists()


def test_fetch_brings_only_the_outputs_that_the_job_file_names(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    fetched = fetch.fetch(installation, "gpt", tmp_path / "out")
    assert [(file.path, file.size_bytes) for file in fetched.files] == [("weights/final.pt", 7)]
    assert (tmp_path / "out" / "weights" / "final.pt").read_bytes() == b"weights"
    assert not (tmp_path / "out" / "scratch.txt").exists()
    assert fetched.missing == ()


def test_fetch_says_what_is_missing_and_follows_no_link_out(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    weights = installation.output_dir(past.gpt) / "weights"
    shutil.rmtree(weights)
    weights.mkdir()
    (tmp_path / "private").write_text("mine")
    (weights / "link").symlink_to(tmp_path / "private")
    assert fetch.fetch(installation, "gpt", tmp_path / "out").missing == ("weights",)
    with pytest.raises(NotFoundError, match="no outputs"):
        fetch.fetch(installation, "conv")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_fetch_into_a_place_that_cannot_be_a_folder_is_refused(
    installation: Installation, past: Past, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"is a file, not a folder|cannot be created") as refused:
        fetch.fetch(installation, "gpt", tmp_path / place)
    assert "--to" in refused.value.hint
    assert (tmp_path / "file").read_text() == "in the way"


def test_outputs_of_two_jobs_of_one_name_are_not_mixed(
    installation: Installation, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    second = submit_job(installation, "gpt")
    other = installation.output_dir(second.id) / "weights" / "final.pt"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"second")
    for _ in range(2):  # again, while it runs
        assert fetch.fetch(installation, past.gpt).folder == "gpt"
    with pytest.raises(UsageError, match=f"of another job with this name, {past.gpt}") as refused:
        fetch.fetch(installation, second.id)
    assert (tmp_path / "gpt" / "weights" / "final.pt").read_bytes() == b"weights"
    assert f"--to {second.id};" in refused.value.hint
    fetch.fetch(installation, second.id, Path(second.id))
    fetch.fetch(installation, second.id, Path("gpt"))  # which the user has named
    with pytest.raises(UsageError, match=second.id):
        fetch.fetch(installation, past.gpt)
