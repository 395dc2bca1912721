"""Limits of projects, when the control plane starts with another configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.services.control_plane import project_limits
from orchestrator.services.doctor import examine
from orchestrator.services.views import Check

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt.yaml"


class Here:
    """A state folder, and control planes that start from folders with a configuration file, or without (None)."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tmp_path, self._monkeypatch = tmp_path, monkeypatch

    def start(self, toml: str | None) -> project_limits.Differences:
        folder = self._tmp_path / ("without" if toml is None else "with")
        folder.mkdir(exist_ok=True)
        if toml is not None:
            (folder / "tradewind.toml").write_text(toml, "utf-8")
        self._monkeypatch.chdir(folder)
        self.config = load_config({"state_dir": str(self._tmp_path / "state")}, environ={})
        installation = open_installation(self.config)
        try:
            return project_limits.keep(installation)
        finally:
            installation.close()

    def submit(self) -> str:
        with Client(self.config) as client:
            (planned,) = client.plans.create(EXAMPLE).new_jobs
            return client.jobs.submit(planned.spec).id

    def doctor(self) -> Check:
        (found,) = (each for each in examine(self.config).checks if each.name == "project limits")
        return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, monkeypatch)


NONE = project_limits.Differences((), ())
LIMITED = "[projects.examples]\nbudget = 9.5\nmax_instances = 3\n"


def test_limits_that_a_control_plane_lost_are_named_until_they_are_back_or_lifted(here: Here, tmp_path: Path) -> None:
    assert here.start(LIMITED) == NONE
    here.submit()
    assert here.doctor().state == "ok"
    for _ in range(2):  # the second one is its background process, or a later one
        ((said, remedy),) = here.start(None).lost
        had = f"(max_instances = 3, budget = 9.5, from {tmp_path}/with/tradewind.toml:1)"
        assert f"project examples has lost its limits {had}, and 1 of its jobs has not ended" in said
        assert f"there is no {tmp_path}/without/tradewind.toml and no " in said
        assert "tradewind down --keep-jobs" in remedy
    found = here.doctor()
    assert found.state == "warn"
    assert had in found.found
    assert here.start(LIMITED) == NONE
    assert here.doctor().state == "ok"
    here.start(None)
    assert here.start("[projects.examples]\n") == NONE  # lifted on purpose
    assert here.doctor().state == "ok"


def test_a_limit_that_was_changed_on_purpose_is_only_said(here: Here) -> None:
    here.start(LIMITED)
    here.submit()
    said = "projects.examples has budget = 20.0; it had max_instances = 3, budget = 9.5"
    assert here.start("[projects.examples]\nbudget = 20\n") == project_limits.Differences((), (said,))
    assert here.doctor().state == "ok"
    assert here.start("[projects.examples]\nbudget = 20\n") == NONE


def test_limits_of_a_project_whose_jobs_have_ended_are_named_once(here: Here) -> None:
    here.start(LIMITED)
    assert len(here.start(None).lost) == 1
    assert here.doctor().state == "ok"
    assert here.start(None) == NONE
