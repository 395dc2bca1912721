"""Pace: limits the bandwidth of uploads, so that training has the rest for its data."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path


class Pace:
    """Computes when the next bytes may be sent, for at most `bytes_per_s` on average; None: at once."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        """How long to wait before sending `size_bytes`; counts them as sent."""
        if self._bytes_per_s is None:
            return 0.0
        begins = max(self._free_at, now_s)
        self._free_at = begins + size_bytes / self._bytes_per_s
        return begins - now_s


class PacedFile(io.BufferedReader):
    """A file that is read only as fast as `before` allows, which is called with the size of each piece before the
    read."""

    def __init__(self, path: Path, before: Callable[[int], None]) -> None:
        super().__init__(io.FileIO(path))
        self._before = before

    def read(self, size: int | None = -1, /) -> bytes:
        """See io.BufferedReader.read."""
        if size is not None and size > 0:
            self._before(size)
        return super().read(size)
