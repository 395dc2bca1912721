"""The notices of Azure, on the machine itself: its metadata service is asked every second, in a thread of its own.

Azure announces the end of a spot machine 30 s before, as a scheduled event of the type `Preempt`. Its instant is
compared with the service's own time, so that the machine's wall clock does not matter. Nothing is approved here: an
approved event begins at once, and the machine needs the whole notice (providers.azure.on_machine approves it when the
work has ended).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from providers.azure.on_machine import Imds, instant
from providers.notice import Notice

LOOK_S = 1.0
PREEMPTION = "preemption"


class ScheduledEvents:
    """The notice of this machine, as it was last seen."""

    def __init__(self, imds: Imds | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._imds = Imds() if imds is None else imds
        self._monotonic = monotonic
        self._newest: Notice | None = None

    def __call__(self) -> Notice | None:
        """The newest notice, without asking."""
        return self._newest

    def started(self) -> ScheduledEvents:
        """Look every LOOK_S from now on, until the process ends."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()
        return self

    def look(self) -> None:
        """Ask once. What is no notice, or no answer, changes nothing: another machine that says so may follow."""
        asked_s = self._monotonic()
        try:
            events, now = self._imds.preemptions()
            left_s = [
                (instant(each["NotBefore"]) - now).total_seconds() if each["NotBefore"] else 0.0  # it has begun
                for each in events
            ]
        except (OSError, ValueError, LookupError, TypeError):
            return
        if left_s and self._newest is None:
            self._newest = Notice(PREEMPTION, asked_s + min(left_s))

    def _watch(self) -> None:
        while True:
            self.look()
            time.sleep(LOOK_S)
