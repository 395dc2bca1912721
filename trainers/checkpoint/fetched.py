"""Chunks that were fetched to this machine before the run that restores them began (trainers.checkpoint.prefetch).

They are named only by their hash: data that does not change has the same bytes in the checkpoints of the next
generation. Local chunks are not trusted: a reader verifies the hash of a chunk, and reads it from the store if it does
not match.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from trainers.checkpoint.manifest import CHUNK_BYTES


class FetchedChunks:
    """A folder of this machine, with a file for each chunk. `kept_bytes` were put there, and `used_bytes` have been
    restored from it so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counting = threading.Lock()
        self.kept_bytes = self.used_bytes = self._begun_bytes = 0

    def put(self, chunk: str, data: bytes) -> None:
        """Store a chunk; readers see all of it or nothing. Raises OSError, and NoRoom if the folder would then be
        larger than the remaining space of the disk, which the job needs."""
        with self._counting:
            self._begun_bytes += len(data)
            if self.kept_bytes + self._begun_bytes > self._free_bytes() - self._begun_bytes:
                raise NoRoom
        partial = self._file(f"{chunk}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(self._file(chunk))
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise
        with self._counting:
            self._begun_bytes -= len(data)
            self.kept_bytes += len(data)

    def has(self, chunk: str) -> bool:
        """Whether the chunk was stored here."""
        return self._file(chunk).is_file()

    def get(self, chunk: str) -> bytes | None:
        """The unverified bytes of a chunk; None if it is not here or cannot be read."""
        with suppress(OSError):
            descriptor = os.open(self._file(chunk), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    with open(descriptor, "rb", closefd=False) as file:
                        return file.read(CHUNK_BYTES + 1)
            finally:
                os.close(descriptor)
        return None

    def used(self, size_bytes: int) -> None:
        """Count verified bytes."""
        with self._counting:
            self.used_bytes += size_bytes

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _file(self, chunk: str) -> Path:
        return self._folder / chunk.rpartition("-")[2]


class NoRoom(Exception):
    """No more may be fetched."""


present: ContextVar[FetchedChunks | None] = ContextVar("chunks that were fetched ahead", default=None)


@contextmanager
def restored_from(folder: str) -> Iterator[FetchedChunks | None]:
    """In this block, chunks are read from `folder` if they are there and intact; "" is no folder."""
    fetched = FetchedChunks(Path(folder)) if folder else None
    before = present.set(fetched)
    try:
        yield fetched
    finally:
        present.reset(before)
