from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim.harness import Installation, Slate, SqliteSlate


@pytest.fixture(scope="session")
def slates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Slate]]:
    """As many as one test has installations at most."""
    made: list[Slate] = [SqliteSlate(tmp_path_factory.mktemp("slate")) for _ in range(3)]
    yield made
    for slate in made:
        slate.close()


@pytest.fixture
def install(tmp_path: Path, slates: list[Slate]) -> Callable[..., Installation]:
    free = iter(slates)

    def make(**fields: Any) -> Installation:
        return Installation(tmp_path, next(free), **fields)

    return make


@pytest.fixture
def home(install: Callable[..., Installation]) -> Installation:
    return install()
