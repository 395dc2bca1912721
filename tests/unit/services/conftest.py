"""An installation on a virtual clock with the fake cloud, empty or with a past."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.installation import Installation
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from tests.unit.services.recorded_history import HOUR_MS, Past, record

T0 = 1_700_000_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(T0)


@pytest.fixture
def cloud(clock: VirtualClock) -> FakeCloud:
    return FakeCloud(clock, seed=1)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: a copy of it is ten times faster than a new one for each test."""
    path = tmp_path_factory.mktemp("template") / "tradewind.db"
    Store.open(f"sqlite:///{path}", VirtualClock(T0)).close()
    return path


@pytest.fixture
def installation(tmp_path: Path, clock: VirtualClock, cloud: FakeCloud, template: Path) -> Iterator[Installation]:
    config = load_config({"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    config.state_dir.mkdir()
    shutil.copy(template, config.state_dir / "tradewind.db")
    store = Store.open(config.store_url, clock)
    opened = Installation(config, clock, store, {"fake": FakeProvider(clock, cloud=cloud)})
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, template: Path) -> tuple[Path, Past]:
    """A state folder with a past, recorded once on the store that each test has a copy of."""
    folder = tmp_path_factory.mktemp("recorded") / "state"
    folder.mkdir()
    shutil.copy(template, folder / "tradewind.db")
    clock = VirtualClock(T0)
    config = load_config({"state_dir": str(folder), "providers.enabled": "fake"}, environ={})
    provider = FakeProvider(clock, cloud=FakeCloud(clock, seed=1))
    with closing(Installation(config, clock, Store.open(config.store_url, clock), {"fake": provider})) as installation:
        reported = record(installation)
    return folder, reported


@pytest.fixture
def past(installation: Installation, clock: VirtualClock, recorded: tuple[Path, Past]) -> Past:
    """Three jobs and three hours later."""
    folder, reported = recorded
    state = installation.config.state_dir
    shutil.copytree(folder, state, ignore=shutil.ignore_patterns("tradewind.db*"), dirs_exist_ok=True)
    with (
        closing(sqlite3.connect(folder / "tradewind.db")) as made,
        closing(sqlite3.connect(state / "tradewind.db")) as ours,
    ):
        made.backup(ours)
    clock.advance(3 * HOUR_MS / 1000)
    return reported
