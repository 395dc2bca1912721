"""A working folder with a job's code, and a state folder that nothing but its path says anything about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Client


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job as a mapping, in a working folder that has its program."""
    (tmp_path / "train.py").write_text("def main(**args): pass\n")
    monkeypatch.chdir(tmp_path)
    return {
        "name": "gpt",
        "train": {"entry": "train:main", "steps": 500},
        "resources": {"gpu": ["SIM-S"]},
        "expected": {"gpu": "SIM-S", "steps_per_s": 4.5},
    }


@pytest.fixture
def client(work: dict[str, Any], tmp_path: Path) -> Iterator[Client]:
    with Client(state_dir=tmp_path / "state") as opened:
        yield opened
