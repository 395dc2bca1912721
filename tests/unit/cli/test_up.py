"""`up`: what it says besides whether the control plane runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control plane can be started: what `up` says before that is enough here."""

    def refuse(*_arguments: Any, **_more: Any) -> None:
        raise OSError("no process can be started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def test_lost_limits_of_a_project_are_a_warning_in_words_and_in_the_document(tradewind: Run, tmp_path: Path) -> None:
    settings = tmp_path / "tradewind.toml"
    settings.write_text("[projects.vision]\nbudget = 9.5\n", "utf-8")
    assert "command_warnings" not in json.loads(tradewind("up", "--output", "json").stdout)
    job = (tmp_path / "job.yaml").read_text("utf-8")
    (tmp_path / "job.yaml").write_text(f"{job}project: vision\n", "utf-8")
    assert tradewind("submit", "job.yaml", "--yes").exit_code == 0
    settings.unlink()
    lost = "project vision has lost its limits (budget = 9.5, "
    for command in (("up",), ("submit", "job.yaml", "--yes")):
        (warning, *_) = json.loads(tradewind(*command, "--output", "json").stdout)["command_warnings"]
        assert lost in warning["message"]
        assert "tradewind down --keep-jobs" in warning["hint"]
    said = tradewind("up").stderr
    assert f"warning: {lost}" in said
    assert "hint: to restore them, run `tradewind down --keep-jobs`" in said


def test_jobs_with_checkpoints_in_a_former_store_root_are_named_and_can_be_cancelled(
    tradewind: Run, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "store-root").write_text(str(state), "utf-8")
    monkeypatch.setenv("TRADEWIND_STORE_ROOT", str(tmp_path / "new"))
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        (job,) = connection.execute("SELECT id FROM job WHERE name = 'gpt'").fetchone()
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (job,))
        connection.execute("UPDATE run SET state = 'ended', \"end\" = 'paused' WHERE \"end\" IS NULL")
        connection.execute("UPDATE run SET training_from_ms = 1")  # the recorded past ends later than now
    moved = f"checkpoints or code in {state}, but store_root is now {tmp_path}/new: "
    for _ in range(2):  # before the control plane has started with the new one, and after
        (found,) = (
            each
            for each in json.loads(tradewind("doctor", "--output", "json").stdout)["checks"]
            if each["name"] == "checkpoints"
        )
        assert found["state"] == "warn"
        assert moved in found["found"]
        assert "gpt" in found["found"]
        assert f"set store_root back to {state}" in found["fix"]
        listed = tradewind("checkpoints", "ls", "gpt")
        assert f"no checkpoints in {tmp_path}/new/checkpoints/{job}; " in listed.stdout
        assert f"in {state}/checkpoints/{job}, but store_root is now {tmp_path}/new" in listed.stdout
        assert f"copy {state}/checkpoints/{job} to {tmp_path}/new/checkpoints/{job}" in listed.stdout
        assert json.loads(tradewind("checkpoints", "ls", "gpt", "--output", "json").stdout)["elsewhere"]
        for command in (("prune", "gpt", "--keep", "1", "--yes"), ("export", "gpt", "gpt.pt")):
            refused = tradewind("checkpoints", *command)
            assert f"{state}/checkpoints/{job}" in refused.stderr
        (warning,) = json.loads(tradewind("up", "--output", "json").stdout)["command_warnings"]
        assert moved in warning["message"]
    assert tradewind("cancel", "gpt", "--yes").exit_code == 0
    monkeypatch.setenv("TRADEWIND_STORE_ROOT", str(state))
    assert json.loads(tradewind("checkpoints", "ls", "gpt", "--output", "json").stdout)["elsewhere"] == ""
