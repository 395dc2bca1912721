"""Decides when to save: periodically within a budget of overhead, and in time before a machine is taken away.

All arguments are monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

_SHORTEST_S = 0.5
_LONGEST_S = 15 * 60.0
_SLACK_S = 0.25


@dataclass(slots=True)
class Cadence:
    """`max_overhead`: the fraction of training time that saves may take.

    Like CheckFreq (Mohan et al., FAST 2021, sec. 4), it bounds the overhead by lengthening the interval, but by the
    measured cost of the latest save, so the interval can also become shorter. The cost is the time for which training
    waited, and by how much steps were slower while the checkpoint was written beside them; in a store that bills each
    request (`billed`), as long as the whole save took: one that costs no time is not free there.

    `save_s`: how long the latest save took until it was durable; None before the first.
    """

    max_overhead: float
    since_s: float
    billed: bool = False
    save_s: float | None = None
    _cost_s: float = 0.0
    _pause_s: float = 0.0  # after a save that was postponed
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    _beside_s: list[float] = field(default_factory=list)  # the steps since a save beside them began

    def due(self, now_s: float) -> bool:
        """True if it is time for a periodic checkpoint."""
        if self._pause_s > 0:
            return now_s - self.since_s >= self._pause_s
        wanted = self._cost_s / self.max_overhead if self.max_overhead > 0 else _LONGEST_S
        return now_s - self.since_s >= min(max(wanted, _SHORTEST_S), _LONGEST_S)

    def stepped(self, wall_s: float, *, beside: bool = False) -> None:
        """Record the duration of a step; `beside`: while a checkpoint was written."""
        (self._beside_s if beside else self._steps_s).append(wall_s)

    def saved(self, began_s: float, ended_s: float) -> None:
        """Record the start and end of a save for which training waited."""
        self.save_s = self._cost_s = ended_s - began_s
        self.since_s, self._pause_s = ended_s, 0.0

    def began(self, now_s: float) -> None:
        """Record that a state was copied, to be written beside the steps that follow."""
        self.since_s = now_s

    def saved_beside(self, held_s: float, took_s: float) -> None:
        """Record a save that kept training waiting for `held_s` and was durable after `took_s`."""
        usual_s = median(self._steps_s) if self._steps_s else 0.0
        slower_s = sum(self._beside_s) - usual_s * len(self._beside_s) if usual_s else 0.0
        cost_s = took_s if self.billed else held_s + max(slower_s, 0.0)
        self.save_s, self._cost_s, self._pause_s = took_s, cost_s, 0.0
        self._beside_s.clear()

    def postponed(self, began_s: float, ended_s: float) -> None:
        """Record that a save could not be made. The next one is tried after as long as that took, at least, and after
        twice the last pause if it was not the first."""
        self.since_s = ended_s
        self._pause_s = min(max(ended_s - began_s, 2 * self._pause_s, _SHORTEST_S), _LONGEST_S)
        self._beside_s.clear()

    def must_end(self, now_s: float, deadline_s: float) -> bool:
        """True if one more step and a save of twice the usual duration would exceed the deadline."""
        longest_s = max((*self._steps_s, *self._beside_s[-20:]), default=0.0)
        return now_s + longest_s + 2 * (self.save_s or 0.0) + _SLACK_S >= deadline_s
