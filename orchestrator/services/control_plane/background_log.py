"""The log of a background control plane: its stderr, written to a file with rotation.

Rotation redirects the file descriptors, so that everything that the process writes ends up in the log.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from orchestrator.config import Config
from orchestrator.config.private import append_privately

LIMIT_BYTES = 10_000_000
SET_ASIDE = 2
"""Number of older log files that are kept; control-plane.log.1 is the newest."""

_STDOUT, _STDERR = 1, 2


def path_of(config: Config) -> Path:
    """The path of the log."""
    return config.state_dir / "control-plane.log"


def last_words(path: Path, begin_bytes: int) -> str:
    """The last line after the first `begin_bytes` of a log, without the time; empty if there is none."""
    with suppress(OSError), path.open("rb") as log:
        log.seek(begin_bytes)
        lines = log.read().decode(errors="replace").splitlines()
        if lines:
            return lines[-1].partition(" error: ")[2] or lines[-1]
    return ""


class ControlPlaneLog:
    """Writes lines to stderr; if that is the file `path`, rotates it at `limit_bytes`."""

    def __init__(self, path: Path | None = None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes

    def say(self, message: str) -> None:
        """Writes one line with the time."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if self._path is not None:
            with suppress(OSError):  # without rotation the file grows
                self._keep_small(self._path)
        with suppress(OSError):  # a full disk must not stop the control plane
            sys.stderr.write(f"{stamp} {message}\n")
            sys.stderr.flush()

    def _keep_small(self, path: Path) -> None:
        ours = os.fstat(_STDERR)
        if ours.st_size < self._limit_bytes:
            return
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process rotates it
            if path.exists() and os.path.samestat(ours, path.stat()):  # else another control plane has rotated it
                for number in range(SET_ASIDE, 0, -1):
                    older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
                    if older.exists():
                        os.replace(older, path.with_name(f"{path.name}.{number}"))
            with append_privately(path) as new:
                os.dup2(new.fileno(), _STDOUT)
                os.dup2(new.fileno(), _STDERR)
        finally:
            os.close(folder)
