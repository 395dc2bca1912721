"""Notice: what a machine learns of its own end from its provider, in time to save its work."""

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
    """The provider will preempt this machine: `deadline_monotonic_s` is a time of CLOCK_MONOTONIC (wall seconds). None:
    it is more likely to than usual, and does not say when."""

    kind: str
    deadline_monotonic_s: float | None


class NoticeWatch(ABC):
    """Asks a cloud's metadata service about this machine, in a thread of its own. The first notice with a deadline
    counts: another one does not postpone it. `monotonic` returns wall seconds of CLOCK_MONOTONIC."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._first: Notice | None = None
        self._warning: Notice | None = None

    def __call__(self) -> Notice | None:
        """The notice that was found, without asking."""
        return self._first or self._warning

    def started(self) -> Self:
        """Look from now on, until the process ends."""
        threading.Thread(target=self.watch, name="notices", daemon=True).start()
        return self

    def watch(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Look until the process ends. A service that answers slowly is asked as often as one that answers at once."""
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
