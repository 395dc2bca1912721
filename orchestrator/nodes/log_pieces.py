"""Log pieces: files that a run appends to, such as its log, stored as pieces that can be read while it runs.

A piece is at most PIECE_BYTES of the file; only the last one grows. It is a sequence of gzip members, one per addition,
so a reader fetches only new bytes. It is replaced as a whole, so no piece is ever half written and the number of
objects stays small. A piece with fewer bytes ends with an empty member: very small additions are larger compressed than
not.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from trainers.objects.base import ObjectStore

LOGS = "logs"
PIECE_BYTES = 1 << 20
MOST_BYTES = 4 << 30
FULL_BYTES = PIECE_BYTES
"""Compressed size at which a piece ends."""
MOST_PACKED_BYTES = 2 * PIECE_BYTES
LEVEL = 6
_END = gzip.compress(b"", LEVEL, mtime=0)
_AT_ONCE_BYTES = 64 << 10
_GZIP = 31  # wbits: zlib.h


def log_prefix(run_id: str, rank: int = 0) -> str:
    """The key of the log of a run's machine, below the place of its job."""
    return f"{LOGS}/{run_id}/{rank}"


def metrics_prefix(run_id: str, rank: int = 0) -> str:
    """The key of its metrics."""
    return f"{log_prefix(run_id, rank)}/metrics"


class PieceWriter:
    """Ships a file, which may not exist yet. One thread at a time."""

    def __init__(self, store: ObjectStore, prefix: str, path: Path) -> None:
        self._store, self._prefix, self._path = store, prefix, path
        self._number = self._size_bytes = 0  # of the current piece
        self._packed = b""
        self._shipped = 0
        self._pending: tuple[int, bytes] | None = (
            None  # the last attempt: the resulting length of the piece, and its content
        )
        self._stopped = False

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the file have not been shipped."""
        if self._stopped:
            return 0
        try:
            return max(0, self._path.stat().st_size - self._shipped)
        except FileNotFoundError:
            return 0

    def ship(self) -> None:
        """Ship the additions, until the end of the current piece. Raises ObjectStoreError, OSError."""
        if self._pending is None:
            self._pending = self._next()
        if self._pending is None:
            return
        size_bytes, packed = self._pending
        self._store.put(f"{self._prefix}/{self._number}", packed)  # if it fails, the same bytes are put again
        self._shipped += size_bytes - self._size_bytes
        self._pending, self._size_bytes, self._packed = None, size_bytes, packed
        if size_bytes == PIECE_BYTES or packed.endswith(_END):
            self._number, self._size_bytes, self._packed = self._number + 1, 0, b""

    def _next(self) -> tuple[int, bytes] | None:
        if not self.waiting_bytes:
            return None
        with open(self._path, "rb") as file:
            file.seek(self._shipped)
            data = file.read(PIECE_BYTES - self._size_bytes)
        if self._shipped + len(data) > MOST_BYTES:
            self._stopped = True
            data = f"\n[the rest is not kept: this has more than {MOST_BYTES >> 30} GiB]\n".encode()
            data = data[: PIECE_BYTES - self._size_bytes]
        size_bytes, packed = self._size_bytes + len(data), self._packed + gzip.compress(data, LEVEL, mtime=0)
        return size_bytes, packed + (_END if size_bytes < PIECE_BYTES and len(packed) > FULL_BYTES else b"")


class PieceReader:
    """Reads the data that a PieceWriter has shipped so far; tolerates any other content from the machine."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._number = self._read_bytes = self._size_bytes = 0
        self._over = False
        self._member, self._is_empty = zlib.decompressobj(_GZIP), True

    def news(self) -> Iterator[bytes]:
        """The bytes added since the last call. Raises ObjectStoreError."""
        while True:
            key = f"{self._prefix}/{self._number}"
            packed = self._store.get_range(key, self._read_bytes, self._read_bytes + MOST_PACKED_BYTES)
            if not packed:
                return
            self._read_bytes += len(packed)
            try:
                for begin in range(0, len(packed), _AT_ONCE_BYTES):
                    yield from self._unpacked(packed[begin : begin + _AT_ONCE_BYTES])
                if not self._over and self._read_bytes > MOST_PACKED_BYTES:
                    raise zlib.error("it is longer than its content")
            except zlib.error:
                yield f"\n[{self._store.where(key)} is damaged]\n".encode()
                self._over = True
            if self._over:
                self._number += 1
                self._begin_piece()

    def _unpacked(self, packed: bytes) -> Iterator[bytes]:
        """At most the rest of a piece. Raises zlib.error."""
        while packed and not self._over:
            data = self._member.decompress(packed, PIECE_BYTES - self._size_bytes)
            self._size_bytes += len(data)
            self._is_empty = self._is_empty and not data
            if data:
                yield data
            self._over = self._size_bytes >= PIECE_BYTES or (self._member.eof and self._is_empty)
            if not self._member.eof:
                break
            packed, self._member, self._is_empty = self._member.unused_data, zlib.decompressobj(_GZIP), True

    def _begin_piece(self) -> None:
        self._read_bytes = self._size_bytes = 0
        self._over = False
        self._member, self._is_empty = zlib.decompressobj(_GZIP), True
