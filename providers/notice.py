"""Notice: a provider's warning to a machine of its end, in time to save its work."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

PREEMPTION = "preemption"
REBALANCE = "rebalance"


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider will preempt this machine at `deadline_monotonic_s` (CLOCK_MONOTONIC, wall seconds). None: a
    preemption is more likely than usual, at an unknown time."""

    kind: str
    deadline_monotonic_s: float | None


class NoticeWatch(ABC):
    """Queries a cloud's metadata service about this machine, in a separate thread. The first notice with a deadline
    counts: later ones do not postpone it. `monotonic` returns wall seconds of CLOCK_MONOTONIC."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._first: Notice | None = None
        self._warning: Notice | None = None

    def __call__(self) -> Notice | None:
        """The notice found so far; sends no request."""
        return self._first or self._warning

    def started(self) -> Self:
        """Start looking, until the process ends."""
        threading.Thread(target=self.watch, name="notices", daemon=True).start()
        return self

    def watch(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Look until the process ends. A slow service is queried as often as a fast one."""
        while True:
            began_s = self._monotonic()
            due_s = began_s + self.look()
            sleep(max(0.0, due_s - self._monotonic()))

    @abstractmethod
    def look(self) -> float:
        """Ask once. Returns the seconds from the beginning of this look to that of the next."""

    def _found(self, deadline_monotonic_s: float) -> None:
        if self._first is None:
            self._first = Notice(PREEMPTION, deadline_monotonic_s)

    def _warned(self) -> None:
        self._warning = Notice(REBALANCE, None)
