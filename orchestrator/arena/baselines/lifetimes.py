"""What SkyNomad (NSDI '27) believes of one zone: how long an instance there still lives, and how often it was up.

Lifetimes: Nelson-Aalen over the runs that ended, and beyond the longest that was lost a constant hazard a tick. *Burst
correction*: that hazard is multiplied by how much denser losses and refusals came than it foretold, in the densest
stretch until now of at most one unit of hazard; not before a unit was lived through at all.

*Following* (the artifact's virtual availability): a zone where nothing runs is a run, too, as long as launches and
probes find it up, and the run that is still open counts among those that got so far.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from itertools import accumulate

_NO_HAZARD = 1e-8
_BURST = 1.0
_WINDOW_H = 12.0
_EPS = 1e-9


class Lifetimes:
    """Runs of one zone, real ones and those that a probe opened. In hours, since the job began."""

    def __init__(self, tick_h: float, *, follow: bool = False) -> None:
        self.tick_h, self.follow = tick_h, follow
        self.began_h: float | None = None
        self.probed_h = 0.0  # time that probes were billed: following, an instance counts as at least so old
        self.burst = 1.0
        self._up: bool | None = None  # as last found, following
        self._ended: list[tuple[float, float]] = []
        self._all: list[float] = []
        self._deaths: Counter[float] = Counter()
        self._lengths: list[float] = []  # at which runs were lost, ascending
        self._hazards: list[float] = []  # the hazard at each
        self._sums = [0.0]
        self._open_hazards: list[float] = []  # the same with the open run among those that got so far
        self._open_sums = [0.0]
        self._failures = 0
        self._lived = 0.0  # hazard so far
        self._marks: deque[tuple[float, int]] = deque()  # hazard before a tick with failures, how many

    def begin(self, now_h: float) -> None:
        """A run begins; one that was open is forgotten."""
        self.began_h = now_h

    def end(self, now_h: float, *, lost: bool) -> None:
        """The open run, if any, is over: lost, or given up."""
        if self.began_h is not None:
            length = round(now_h - self.began_h, 9)
            self._ended.append((self.began_h, now_h))
            insort(self._all, length)
            if lost:
                self._deaths[length] += 1
            self._fit()
        self.began_h = None
        self._failures += lost

    def refused(self) -> None:
        """A launch or a probe found no capacity."""
        self._failures += 1

    def found(self, now_h: float, *, up: bool) -> None:
        """A launch, a probe or leaving it for another says whether it is still followed."""
        if not self.follow or up == self._up:
            return
        if up:
            self.begin(now_h)
        elif self._up:
            self.end(now_h, lost=True)
        self._up = up

    def tick(self, now_h: float) -> None:
        """Once a tick, before deciding: takes in the hazard that was lived through and what failed."""
        hazard = 0.0
        if self.began_h is not None:
            age = now_h - self.began_h
            tail = self._tail(age)
            hazard = max(self._hazard_until(age, tail) - self._hazard_until(age - self.tick_h, tail), 0.0)
        if hazard == 0.0:
            if not self._failures:
                return
            hazard = self._tail(0.0) * self.tick_h
        if self._failures:
            self._marks.append((self._lived, self._failures))
        self._lived += hazard
        self._failures = 0
        self.burst = self._densest() if self._lived >= _BURST else 1.0

    def expected_h(self, now_h: float, most_h: float) -> float:
        """Hours that an instance there still lives, or would if it started now; at most `most_h`."""
        open_age = 0.0 if self.began_h is None else now_h - self.began_h
        at = max(open_age, self.probed_h) if self.follow else open_age
        tail = self._tail(open_age)
        mean, survives = 0.0, 1.0
        for index in range(bisect_right(self._lengths, at + _EPS), len(self._lengths)):
            mean += survives * (self._lengths[index] - at)
            if mean >= most_h:
                return most_h
            survives *= math.exp(-self.burst * self._hazards[index])
            at = self._lengths[index]
        return min(mean + survives * self.tick_h / -math.expm1(-self.burst * tail), most_h)

    def available(self, now_h: float) -> float:
        """Share of the last 12 hours that a run was open there."""
        since = max(0.0, now_h - _WINDOW_H)
        if now_h <= since:
            return 0.0
        up = 0.0 if self.began_h is None else now_h - max(self.began_h, since)
        for start, end in reversed(self._ended):
            if end <= since:
                break
            up += end - max(start, since)
        return min(up / (now_h - since), 1.0)

    def _fit(self) -> None:
        """Nelson-Aalen: of the runs that got to a length, the share that was lost there."""
        self._lengths = sorted(self._deaths)
        reached = [len(self._all) - bisect_left(self._all, at) for at in self._lengths]
        deaths = [self._deaths[at] for at in self._lengths]
        self._hazards = [lost / of for lost, of in zip(deaths, reached, strict=True)]
        self._open_hazards = [lost / (of + 1) for lost, of in zip(deaths, reached, strict=True)]
        self._sums = [0.0, *accumulate(self._hazards)]
        self._open_sums = [0.0, *accumulate(self._open_hazards)]

    def _tail(self, age: float) -> float:
        """The hazard beyond the longest life that was lost; the open run is so old (0: there is none)."""
        if not self._lengths:
            return _NO_HAZARD
        counted = self.follow and age > 0 and age + _EPS >= self._lengths[-1]
        return (self._open_hazards if counted else self._hazards)[-1]

    def _hazard_until(self, age: float, tail: float) -> float:
        """Cumulative hazard, up to the open run's age; from one length to the next it grows as beyond the last."""
        if age <= 0:
            return 0.0
        before = bisect_left(self._lengths, age - _EPS)
        at = self._lengths[before - 1] if before else 0.0
        return (self._open_sums if self.follow else self._sums)[before] + (age - at) * tail

    def _densest(self) -> float:
        """Failures per unit of hazard, at least 1."""
        while self._marks and self._lived - self._marks[0][0] > _BURST + _EPS:
            self._marks.popleft()
        most, failures = 1.0, 0
        for before, count in reversed(self._marks):
            failures += count
            most = max(most, failures / (self._lived - before))
        return most
