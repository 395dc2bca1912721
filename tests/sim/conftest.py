from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.rig import memory_folder
from tests.sim.harness import ScratchDatabase, SimulatedInstallation, SqliteScratchDatabase


@pytest.fixture(scope="session")
def databases() -> Iterator[list[ScratchDatabase]]:
    """As many as one test has installations at most."""
    with memory_folder() as folder, ExitStack() as stack:
        made: list[ScratchDatabase] = []
        for number in range(3):
            (folder / str(number)).mkdir()
            made.append(SqliteScratchDatabase(folder / str(number)))
            stack.callback(made[-1].close)
        yield made


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def install(memory: Path, databases: list[ScratchDatabase]) -> Callable[..., SimulatedInstallation]:
    free = iter(enumerate(databases))

    def make(**fields: Any) -> SimulatedInstallation:
        number, database = next(free)
        return SimulatedInstallation(memory / str(number), database, **fields)

    return make


@pytest.fixture
def home(install: Callable[..., SimulatedInstallation]) -> SimulatedInstallation:
    return install()
