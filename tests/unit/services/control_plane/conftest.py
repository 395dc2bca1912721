"""Control planes of one state folder, here and elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.store import Leadership, Store
from providers.clock import SystemClock

EXAMPLE = Path(__file__).parents[4] / "examples" / "gpt.yaml"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return at(tmp_path / "state")


def at(state: Path) -> Config:
    environment = {"TRADEWIND_STATE_DIR": str(state), "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "false"}
    return load_config(environ=environment, cwd=state.parent)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with Tradewind."""
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def lead(config: Config, holder: str) -> tuple[Store, Leadership]:
    store = Store.open(config.store_url, SystemClock())
    leadership = store.campaign(holder)
    assert leadership is not None
    return store, leadership
