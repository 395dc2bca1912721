"""How long solving may take in all, over as many calls of the solver as it needs."""

from __future__ import annotations

import time
from collections.abc import Callable

DEFAULT_S = 60.0


class TimeLimit:
    """So many `seconds` from now, on `clock` (seconds from any start)."""

    def __init__(self, seconds: float = DEFAULT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end_s = clock() + seconds

    @property
    def left_s(self) -> float:
        """How many seconds are left, at least 0."""
        return max(self._end_s - self._clock(), 0.0)

    def part(self, share: float) -> TimeLimit:
        """A limit of its own: the part `share` of what is left."""
        return TimeLimit(share * self.left_s, self._clock)
