"""Chunks that were fetched to this machine before the run that restores them began (trainers.checkpoint.ahead).

Nothing is trusted because it is here: who reads a chunk verifies its hash, and takes it from the store if it does not
match.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from trainers.checkpoint.manifest import CHUNK_BYTES


class FetchedChunks:
    """A folder of this machine, with a file for each chunk. `used_bytes`: what was restored from it so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counting = threading.Lock()
        self.used_bytes = 0

    def put(self, chunk: str, data: bytes) -> None:
        """Keep a chunk. Whoever reads finds all of it or nothing. Raises OSError."""
        partial = self._folder / f"{chunk}.partial"
        partial.write_bytes(data)
        partial.replace(self._folder / chunk)

    def get(self, chunk: str) -> bytes | None:
        """What should be this chunk; None if it is not here or cannot be read."""
        with suppress(OSError), (self._folder / chunk).open("rb") as file:
            return file.read(CHUNK_BYTES + 1)
        return None

    def used(self, size_bytes: int) -> None:
        """Count what was right."""
        with self._counting:
            self.used_bytes += size_bytes

    def room_bytes(self) -> int:
        """How much may be kept: half of what is free on this disk, so that the job has the rest."""
        return shutil.disk_usage(self._folder).free // 2


present: ContextVar[FetchedChunks | None] = ContextVar("chunks that were fetched ahead", default=None)


@contextmanager
def restored_from(folder: str) -> Iterator[FetchedChunks | None]:
    """In this block, chunks are read from `folder` as far as they are there and intact; "" is no folder."""
    fetched = FetchedChunks(Path(folder)) if folder else None
    before = present.set(fetched)
    try:
        yield fetched
    finally:
        present.reset(before)
