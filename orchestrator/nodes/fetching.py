"""Fetching: a process on a machine that fetches chunks of a job's checkpoints while its next run is being prepared.

A thread waits for the process and deletes the fetched files. The agent's own thread also renews the machine's lease,
so it must wait for neither: deleting a large checkpoint can take a minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.nodes.messages import Ahead

MOST_DIGITS = 18


class Fetching:
    """Fetches for one run into `folder`. `variables` give access to the store of its checkpoints. `busy`: it is still
    fetching. `fetched_bytes`: the bytes fetched, once it has ended by itself."""

    def __init__(
        self, ahead: Ahead, folder: Path, variables: Mapping[str, str], say: Callable[[str], None], *, shared: bool
    ) -> None:
        """Begins at once. `shared`: the run has several machines. Raises OSError."""
        self.folder = folder
        self.busy, self.fetched_bytes = True, 0
        self._say, self._over = say, threading.Event()
        flags = [flag for flag, is_set in (("--trains", ahead.trains), ("--shared", shared)) if is_set]
        command = [ahead.root, ahead.job, str(ahead.generation), str(folder), *flags]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainers.checkpoint.prefetch", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=variables,
        )
        self._following = threading.Thread(target=self._follow, name="fetching", daemon=True)
        self._following.start()

    def stop(self) -> None:
        """Stop fetching; fetched chunks stay."""
        self._process.kill()
        self._process.wait()

    def clear(self) -> None:
        """Stop fetching and delete the fetched chunks: the run has restored or is over. Waits for neither."""
        self._over.set()
        self._process.kill()

    def join(self) -> None:
        """After `clear`: wait until nothing is left."""
        self._following.join()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            said = answer.read(MOST_DIGITS + 1).strip()
        self._process.wait()
        self.fetched_bytes = int(said) if said.isdigit() else 0
        self.busy = False
        if self.fetched_bytes:
            with suppress(OSError):  # a full disk, where the console is a file
                self._say(f"fetched {self.fetched_bytes} bytes of checkpoints ahead of the restore")
        self._over.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
