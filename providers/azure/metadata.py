"""Azure's notices, read on the machine itself: a separate thread queries the metadata service every second.

Azure announces the end of a spot machine 30 s ahead, as a scheduled event of the type `Preempt`. The announced time is
compared with the service's own time, so the machine's wall clock does not matter. Nothing is approved here: an approved
event begins at once, and the machine needs the whole notice (providers.azure.on_machine approves it when the work has
ended).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from providers.azure.on_machine import Imds, instant
from providers.notice import NoticeWatch

LOOK_S = 1.0


class ScheduledEvents(NoticeWatch):
    """The notice of this machine."""

    def __init__(self, imds: Imds | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(monotonic)
        self._imds = Imds() if imds is None else imds

    def look(self) -> float:
        """Ask once. An answer without a notice, or no answer, changes nothing."""
        asked_s = self._monotonic()
        try:
            events, now = self._imds.preemptions()
            left_s = [
                (instant(each["NotBefore"]) - now).total_seconds() if each["NotBefore"] else 0.0  # the event has begun
                for each in events
            ]
            if left_s:
                self._found(asked_s + min(left_s))
        except (OSError, ValueError, LookupError, TypeError):
            pass
        return LOOK_S
