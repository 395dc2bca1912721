"""Fetching: a process of a machine that fetches chunks of a job's checkpoints while its next run is being prepared."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.nodes.messages import Ahead

MOST_DIGITS = 18


class Fetching:
    """Of one run, into `folder`. `variables` lead to the store of its checkpoints."""

    def __init__(
        self, ahead: Ahead, folder: Path, variables: Mapping[str, str], say: Callable[[str], None], *, shared: bool
    ) -> None:
        """Begins at once. `shared`: the run has several machines. Raises OSError."""
        self.folder = folder
        self._say = say
        self._fetched_bytes: int | None = None
        flags = [flag for flag, is_set in (("--trains", ahead.trains), ("--shared", shared)) if is_set]
        command = [ahead.root, ahead.job, str(ahead.generation), str(folder), *flags]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainers.checkpoint.ahead", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=variables,
        )

    @property
    def busy(self) -> bool:
        """Whether it still fetches."""
        return self._process.poll() is None

    @property
    def fetched_bytes(self) -> int:
        """What it has fetched, once it has ended."""
        if self._fetched_bytes is None and not self.busy:
            assert self._process.stdout is not None
            with self._process.stdout as answer:
                said = answer.read(MOST_DIGITS + 1).strip()
            self._fetched_bytes = int(said) if said.isdigit() else 0
            if self._fetched_bytes:
                self._say(f"fetched {self._fetched_bytes} bytes of checkpoints ahead of the restore")
        return self._fetched_bytes or 0

    def stop(self) -> None:
        """Fetch nothing more; what is there stays."""
        if self.busy:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._fetched_bytes is None:
            self._fetched_bytes = 0

    def clear(self) -> None:
        """Stop, and delete what is there: the run has restored, or is over."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
