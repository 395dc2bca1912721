"""Faults of the fake cloud: which calls fail, and how. Scripted for tests, seeded for long simulations."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from enum import StrEnum


class Fault(StrEnum):
    """A way in which a call fails."""

    CAPACITY = "capacity"  # CapacityError, no effect; only launches
    THROTTLED = "throttled"  # ThrottledError, no effect
    NO_ANSWER = "no answer"  # UnavailableError, no effect
    LOST_REPLY = "lost reply"  # UnavailableError, after the effect
    LATE = "late"  # UnavailableError, before the effect: the call times out and takes effect later
    PARTIAL = "partial"  # the answer omits every other instance; only LISTINGS


LISTINGS = ("describe", "list_owned", "find")


class Faults:
    """The schedule of faults. `rates` maps a fault to its probability per call that can have it; `seed` fixes the
    draws.

    Scripted faults of a call come first, in the order in which they were injected.
    """

    def __init__(self, seed: int = 0, rates: Mapping[Fault, float] | None = None) -> None:
        self._random = random.Random(seed)
        self._rates = dict(rates or {})
        self._script: dict[str, deque[Fault | None]] = {}

    def inject(self, call: str, *faults: Fault | None) -> None:
        """Let the next calls of this name ("launch", "terminate", "describe", ...) fail this way; None: the call
        succeeds.
        """
        self._script.setdefault(call, deque()).extend(faults)

    def forget(self, *calls: str) -> None:
        """Forget the injected faults of these calls, by default of all, that have not happened yet."""
        for call in calls or tuple(self._script):
            self._script.pop(call, None)

    def next(self, call: str) -> Fault | None:
        """The fault of the current call; None if it succeeds."""
        if script := self._script.get(call):
            return script.popleft()
        draw = self._random.random()
        for fault, rate in self._rates.items():
            if (fault is Fault.CAPACITY and call != "launch") or (fault is Fault.PARTIAL and call not in LISTINGS):
                continue
            if draw < rate:
                return fault
            draw -= rate
        return None
