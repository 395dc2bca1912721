from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sim import memory_folder
from tests.sim.harness import Installation, Slate, SqliteSlate


@pytest.fixture(scope="session")
def slates() -> Iterator[list[Slate]]:
    """As many as one test has installations at most."""
    with memory_folder() as folder, ExitStack() as stack:
        made: list[Slate] = []
        for number in range(3):
            (folder / str(number)).mkdir()
            made.append(SqliteSlate(folder / str(number)))
            stack.callback(made[-1].close)
        yield made


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def install(memory: Path, slates: list[Slate]) -> Callable[..., Installation]:
    free = iter(enumerate(slates))

    def make(**fields: Any) -> Installation:
        number, slate = next(free)
        return Installation(memory / str(number), slate, **fields)

    return make


@pytest.fixture
def home(install: Callable[..., Installation]) -> Installation:
    return install()
