"""Pulse: a thread that sends a leader's heartbeats while its main thread is busy.

A standby cannot distinguish a leader that waits for a slow node from a dead one. So a thread sends heartbeats, which
allows a short TAKEOVER_S. The thread stops when the main thread has made no progress for HANG_S: a leader that hangs
must be deposed before the leases of its runs expire. A stopped or dead process runs no threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.errors import NotLeaderError, StoreError

PULSE_S = 1.0
"""Wall seconds between two heartbeats of the thread."""

HANG_S = 45.0
"""Wall seconds without progress of the main thread after which the leader counts as hanging."""


class Pulse:
    """Calls `beat` every `every_s` between `start` and `stop`, while `progress` was called within the last `hang_s`."""

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
        self._progress_s = monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tradewind-pulse", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def progress(self) -> None:
        """Reports that the main thread makes progress."""
        self._progress_s = self._monotonic()

    def stop(self) -> None:
        """Stops the thread and waits for its end."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            if self._monotonic() - self._progress_s > self._hang_s:
                continue  # the main thread may recover before another control plane takes over
            try:
                self._beat()
            except NotLeaderError:
                return  # the leader learns it at its next transaction
            except StoreError:
                continue
