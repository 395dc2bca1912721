"""Decides when to save: periodically within a budget of overhead, and in time before a machine is taken away.

All arguments are monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_SHORTEST_S = 0.5
_LONGEST_S = 15 * 60.0
_SLACK_S = 0.25


@dataclass(slots=True)
class Cadence:
    """`max_overhead`: the fraction of training time that saves may take.

    Like CheckFreq (Mohan et al., FAST 2021, sec. 4), it bounds the overhead by lengthening the interval, but by the
    measured duration of the latest save, so the interval can also become shorter.
    """

    max_overhead: float
    since_s: float
    save_s: float | None = None
    _pause_s: float = 0.0  # after a save that was postponed
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def due(self, now_s: float) -> bool:
        """True if it is time for a periodic checkpoint."""
        if self._pause_s > 0:
            return now_s - self.since_s >= self._pause_s
        wanted = (self.save_s or 0.0) / self.max_overhead if self.max_overhead > 0 else _LONGEST_S
        return now_s - self.since_s >= min(max(wanted, _SHORTEST_S), _LONGEST_S)

    def stepped(self, wall_s: float) -> None:
        """Record the duration of a step."""
        self._steps_s.append(wall_s)

    def saved(self, began_s: float, ended_s: float) -> None:
        """Record the start and end of a save."""
        self.save_s = ended_s - began_s
        self.since_s, self._pause_s = ended_s, 0.0

    def postponed(self, began_s: float, ended_s: float) -> None:
        """Record that a save could not be made. The next one is tried after as long as that took, at least, and after
        twice the last pause if it was not the first."""
        self.since_s = ended_s
        self._pause_s = min(max(ended_s - began_s, 2 * self._pause_s, _SHORTEST_S), _LONGEST_S)

    def must_end(self, now_s: float, deadline_s: float) -> bool:
        """True if one more step and a save of twice the usual duration would exceed the deadline."""
        return now_s + max(self._steps_s, default=0.0) + 2 * (self.save_s or 0.0) + _SLACK_S >= deadline_s
