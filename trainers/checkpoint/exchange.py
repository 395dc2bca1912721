"""The connection among the ranks of a run, as far as checkpoints need it."""

from __future__ import annotations

from typing import Protocol


class Exchange(Protocol):
    """The ranks, from the point of view of one."""

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def exchange(self, data: bytes) -> list[bytes]:
        """What every rank passed, by rank; each must call it. Raises PeerLost."""
        ...


class Alone:
    """A single process."""

    rank, size = 0, 1

    def exchange(self, data: bytes) -> list[bytes]:
        """See Exchange."""
        return [data]


ALONE = Alone()
