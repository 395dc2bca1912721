"""Lifetimes: SkyNomad's (NSDI '27) estimates for one zone: the lifetime of a machine there, and the share of time with
one up.

Lifetimes are Nelson-Aalen estimates over ended runs, with a constant hazard per tick beyond the longest lost run.
*Burst correction*: that hazard is multiplied by the ratio of actual to predicted losses and refusals in the densest
recent stretch of at most one unit of hazard, once one unit has passed.

*Following* (the artifact's virtual availability): a zone where nothing runs also counts as a run while launches and
probes find it up, and the open run counts among the runs that reached its age.
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
    """Runs of one zone, real ones and those opened by probes. Times are hours since the job began."""

    def __init__(self, tick_h: float, *, follow: bool = False) -> None:
        self.tick_h, self.follow = tick_h, follow
        self.began_h: float | None = None
        self.probed_h = 0.0  # billed probe time: when following, a machine counts as at least this old
        self.burst = 1.0
        self._up: bool | None = None  # as last found, following
        self._ended: list[tuple[float, float]] = []
        self._all: list[float] = []
        self._deaths: Counter[float] = Counter()
        self._lengths: list[float] = []  # at which runs were lost, ascending
        self._hazards: list[float] = []  # the hazard at each
        self._sums = [0.0]
        self._open_hazards: list[float] = []  # the same, counting the open run
        self._open_sums = [0.0]
        self._failures = 0
        self._lived = 0.0  # hazard so far
        self._marks: deque[tuple[float, int]] = deque()  # (hazard before a tick with failures, their number)

    def begin(self, now_h: float) -> None:
        """Start a run; an open one is dropped."""
        self.began_h = now_h

    def end(self, now_h: float, *, lost: bool) -> None:
        """End the open run, if any: lost or released."""
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
        """Count a launch or probe that found no capacity."""
        self._failures += 1

    def found(self, now_h: float, *, up: bool) -> None:
        """Record the evidence of a launch, a probe or a move away about the zone, when following."""
        if not self.follow or up == self._up:
            return
        if up:
            self.begin(now_h)
        elif self._up:
            self.end(now_h, lost=True)
        self._up = up

    def tick(self, now_h: float) -> None:
        """Call once per tick before deciding: records the hazard of the tick and the failures."""
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
        """Expected remaining hours of a machine there, or of one started now; at most `most_h`."""
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
        """The share of the last 12 hours in which a run was open there."""
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
        """Nelson-Aalen: the share of runs reaching each length that was lost there."""
        self._lengths = sorted(self._deaths)
        reached = [len(self._all) - bisect_left(self._all, at) for at in self._lengths]
        deaths = [self._deaths[at] for at in self._lengths]
        self._hazards = [lost / of for lost, of in zip(deaths, reached, strict=True)]
        self._open_hazards = [lost / (of + 1) for lost, of in zip(deaths, reached, strict=True)]
        self._sums = [0.0, *accumulate(self._hazards)]
        self._open_sums = [0.0, *accumulate(self._open_hazards)]

    def _tail(self, age: float) -> float:
        """The hazard beyond the longest lost run; `age` is the open run's (0: there is none)."""
        if not self._lengths:
            return _NO_HAZARD
        counted = self.follow and age > 0 and age + _EPS >= self._lengths[-1]
        return (self._open_hazards if counted else self._hazards)[-1]

    def _hazard_until(self, age: float, tail: float) -> float:
        """The cumulative hazard up to an age; between two lengths it grows as beyond the last one."""
        if age <= 0:
            return 0.0
        before = bisect_left(self._lengths, age - _EPS)
        at = self._lengths[before - 1] if before else 0.0
        return (self._open_sums if self.follow else self._sums)[before] + (age - at) * tail

    def _densest(self) -> float:
        """The highest recent number of failures per unit of hazard, at least 1."""
        while self._marks and self._lived - self._marks[0][0] > _BURST + _EPS:
            self._marks.popleft()
        most, failures = 1.0, 0
        for before, count in reversed(self._marks):
            failures += count
            most = max(most, failures / (self._lived - before))
        return most
