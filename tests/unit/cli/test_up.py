"""`up`: what it says besides whether the control plane runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
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
    lost = "project vision no longer has the limits that it had (budget = 9.5, "
    for command in (("up",), ("submit", "job.yaml", "--yes")):
        (warning, *_) = json.loads(tradewind(*command, "--output", "json").stdout)["command_warnings"]
        assert lost in warning["message"]
        assert "tradewind down --keep-jobs" in warning["hint"]
    said = tradewind("up").stderr
    assert f"warning: {lost}" in said
    assert "hint: to set them back, run `tradewind down --keep-jobs`" in said
