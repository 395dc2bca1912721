"""Decides when to save: periodically within a budget of overhead, and in time before a machine is taken away.

All arguments are monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from trainers.control import Risk
from trainers.loop.tuner import LONGEST_S, SHORTEST_S, interval_s

_SLACK_S = 0.25


@dataclass(slots=True)
class Cadence:
    """`max_overhead`: the fraction of training time that saves may take; `risk`: how often the machine is expected to
    be lost, None if that is unknown. The interval between saves follows from both and from the cost of the latest save
    (trainers.loop.tuner).

    The cost is the time for which training waited, by how much steps were slower while the checkpoint was written
    beside them, and the store's charge. In a store that bills each request (`billed`), a save of unknown charge costs
    as long as the whole of it took.

    `save_s`: how long the latest save took until it was durable; None before the first.
    """

    max_overhead: float
    since_s: float
    billed: bool = False
    risk: Risk | None = None
    save_s: float | None = None
    _cost_s: float = 0.0
    _pause_s: float = 0.0  # after a save that was postponed
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    _beside_s: list[float] = field(default_factory=list)  # the steps since a save beside them began

    def due(self, now_s: float) -> bool:
        """True if it is time for a periodic checkpoint."""
        if self._pause_s > 0:
            return now_s - self.since_s >= self._pause_s
        return now_s - self.since_s >= self.interval_s()

    def interval_s(self) -> float:
        """Seconds from one periodic checkpoint to the next."""
        losses_per_h, charge_s = (None, None) if self.risk is None else (self.risk.losses_per_h, self.risk.charge_s)
        if charge_s is None and self.billed:
            return interval_s(self.save_s or 0.0, losses_per_h, self.max_overhead)
        return interval_s(self._cost_s + (charge_s or 0.0), losses_per_h, self.max_overhead)

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
        self.save_s, self._cost_s, self._pause_s = took_s, held_s + max(slower_s, 0.0), 0.0
        self._beside_s.clear()

    def postponed(self, began_s: float, ended_s: float) -> None:
        """Record that a save could not be made. The next one is tried after as long as that took, at least, and after
        twice the last pause if it was not the first."""
        self.since_s = ended_s
        self._pause_s = min(max(ended_s - began_s, 2 * self._pause_s, SHORTEST_S), LONGEST_S)
        self._beside_s.clear()

    def late_s(self, now_s: float, deadline_s: float) -> float:
        """How much time is missing for a save that takes as long as the latest; 0 if there is enough. Also 0 once the
        deadline has passed: a machine that outlives it may do so for long, and a save can only help.
        """
        return 0.0 if now_s >= deadline_s else max(now_s + (self.save_s or 0.0) - deadline_s, 0.0)

    def must_end(self, now_s: float, deadline_s: float) -> bool:
        """True if one more step and a save of twice the usual duration would exceed the deadline."""
        longest_s = max((*self._steps_s, *self._beside_s[-20:]), default=0.0)
        return now_s + longest_s + 2 * (self.save_s or 0.0) + _SLACK_S >= deadline_s
