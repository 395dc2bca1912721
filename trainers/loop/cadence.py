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
    be lost, None if unknown. The interval between saves follows from both and from the cost of the latest save
    (trainers.loop.tuner).

    The cost is the time for which training waited, the extra time of the steps during a background save, and the
    store's charge. In a store that bills each request (`billed`), a save with an unknown charge costs the whole time
    that it took.

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
    _beside_s: list[float] = field(default_factory=list)  # the durations of the steps since a background save began

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
        """Record the duration of a step; `beside`: during a background save."""
        (self._beside_s if beside else self._steps_s).append(wall_s)

    def saved(self, began_s: float, ended_s: float) -> None:
        """Record the start and end of a save for which training waited."""
        self.save_s = self._cost_s = ended_s - began_s
        self.since_s, self._pause_s = ended_s, 0.0

    def began(self, now_s: float) -> None:
        """Record that a state was copied, to be written in the background."""
        self.since_s = now_s

    def saved_beside(self, held_s: float, took_s: float) -> None:
        """Record a background save: training waited for `held_s`, and it was durable after `took_s`."""
        usual_s = median(self._steps_s) if self._steps_s else 0.0
        slower_s = sum(self._beside_s) - usual_s * len(self._beside_s) if usual_s else 0.0
        self.save_s, self._cost_s, self._pause_s = took_s, held_s + max(slower_s, 0.0), 0.0
        self._beside_s.clear()

    def postponed(self, began_s: float, ended_s: float) -> None:
        """Record a failed save. The next one is tried after at least the time that the failed one took, and after twice
        the last pause if this was not the first failure."""
        self.since_s = ended_s
        self._pause_s = min(max(ended_s - began_s, 2 * self._pause_s, SHORTEST_S), LONGEST_S)
        self._beside_s.clear()

    def late_s(self, now_s: float, deadline_s: float) -> float:
        """How much time is missing for a save that takes as long as the latest one; 0 if there is enough. Also 0 after
        the deadline: the machine may live on for long, and a save can only help.
        """
        return 0.0 if now_s >= deadline_s else max(now_s + (self.save_s or 0.0) - deadline_s, 0.0)

    def must_end(self, now_s: float, deadline_s: float) -> bool:
        """True if one more step and a save of twice the usual duration would exceed the deadline."""
        longest_s = max((*self._steps_s, *self._beside_s[-20:]), default=0.0)
        return now_s + longest_s + 2 * (self.save_s or 0.0) + _SLACK_S >= deadline_s
