"""The time at a loopback cloud: it stands still while the cloud does one thing.

To end a real process takes time. Were the clock read before and after it, the cloud would bill a machine until one time
and say another.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from types import TracebackType

from providers.clock import Clock


class Present:
    """A lock, and the time since when it is held. A thread may enter it more than once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.RLock()
        self._entered = 0
        self._since: datetime | None = None

    def now(self) -> datetime:
        """The time, to the millisecond."""
        since = self._since
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC) if since is None else since

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._entered == 0:
            self._since = self.now()
        self._entered += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._since = None
        self._lock.release()
