"""The connection between the ranks of a run, as far as checkpoints need it."""

from __future__ import annotations

from typing import Protocol


class Exchange(Protocol):
    """The ranks, from the point of view of one."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def exchange(self, data: bytes) -> list[bytes]:
        """The data that every rank passed, by rank; every rank must call it. Raises PeerLost."""
        ...


class Alone:
    """A single process."""

    rank, size = 0, 1

    def exchange(self, data: bytes) -> list[bytes]:
        """See Exchange."""
        return [data]


ALONE = Alone()
