"""Pulse: a leader's beat while its own thread is busy, for as long as that may reasonably take.

A standby cannot tell a leader that waits for a slow node from one that is gone: both are silent. So a thread beats for
the leader, and TAKEOVER_S can be short. It stops when the leader has not beaten by itself for HANG_S: one that hangs
must be deposed, before the leases of its runs expire. A stopped or dead process has no threads that run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.errors import NotLeaderError, StoreError

PULSE_S = 1.0
"""Wall seconds between two beats of the thread."""

HANG_S = 45.0
"""Wall seconds without a sign of the leader's own thread after which it counts as hanging."""


class Pulse:
    """Calls `beat` every `every_s` between `start` and `stop`, unless `lives` has not been called for `hang_s`."""

    def __init__(
        self,
        beat: Callable[[], None],
        *,
        every_s: float = PULSE_S,
        hang_s: float = HANG_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beat = beat
        self._every_s = every_s
        self._hang_s = hang_s
        self._monotonic = monotonic
        self._lived_s = monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tradewind-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def lives(self) -> None:
        """The leader's own thread gets on."""
        self._lived_s = self._monotonic()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            if self._monotonic() - self._lived_s > self._hang_s:
                continue  # it may come back to life, if nobody has taken its place by then
            try:
                self._beat()
            except NotLeaderError:
                return  # the leader will hear of it at its next transaction
            except StoreError:
                continue
