"""The Ray cluster of a run on two machines: one place on each, and the one that is left notices that the other is gone.

It holds the pinned version of Ray to what nodes.cluster uses to join a cluster.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers import processes
from tests.e2e.living import PROGRAMS

pytestmark = pytest.mark.ray

TOKEN = "ab" * 32


class Machine:
    """A machine in a session of its own."""

    def __init__(self, folder: Path, rank: int, head: str = "") -> None:
        command = [sys.executable, str(PROGRAMS / "cluster_machine.py"), str(rank), "2", str(folder), TOKEN]
        self._process = subprocess.Popen(
            [*command, *([head] if head else [])], stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def says(self, word: str) -> list[str]:
        """The rest of the line that begins with this word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[:1] == [word]:
                return words[1:]
        raise AssertionError(f"it ended before it said {word}")

    def kill(self) -> None:
        """All of its processes, at once."""
        if self._process.poll() is None:
            processes.kill_session(self._process.pid)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    folders = [tmp_path_factory.mktemp("m") for _ in range(2)]
    first = Machine(folders[0], 0)
    started = [first]
    try:
        (head,) = first.says("up")
        started.append(Machine(folders[1], 1, head))
        for each in started:
            assert each.says("actor") == ["starting", "True"], "each actor is on its own machine"
        yield started
    finally:
        for each in started:
            each.kill()


@pytest.mark.parametrize("gone", [0, 1])
def test_a_machine_that_is_gone_is_noticed_by_the_other(machines: list[Machine], gone: int) -> None:
    machines[gone].kill()
    assert machines[1 - gone].says("lost")
