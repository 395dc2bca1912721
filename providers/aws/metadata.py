"""The notices of AWS, on the machine itself: its metadata service is asked every second, in a thread of its own.

AWS announces the end of a spot machine two minutes before. Its instant is compared with the service's own time, so that
the machine's wall clock does not matter. Rebalance recommendations have no deadline and are not read.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from providers.aws.on_machine import Imds, instant
from providers.notice import Notice

LOOK_S = 1.0
PREEMPTION = "preemption"
_PATH = "/latest/meta-data/spot/instance-action"


class SpotNotices:
    """The notice of this machine, as it was last seen."""

    def __init__(self, imds: Imds | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._imds = Imds() if imds is None else imds
        self._monotonic = monotonic
        self._newest: Notice | None = None

    def __call__(self) -> Notice | None:
        """The newest notice, without asking."""
        return self._newest

    def started(self) -> SpotNotices:
        """Look every LOOK_S from now on, until the process ends."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()
        return self

    def look(self) -> None:
        """Ask once. What is no notice, or no answer, changes nothing: another machine that says so may follow."""
        asked_s = self._monotonic()
        try:
            said, now = self._imds.get(_PATH)
            if said is None:
                return
            left_s = (instant(json.loads(said)["time"]) - now).total_seconds()
        except (OSError, ValueError, KeyError, TypeError):
            return
        if self._newest is None:
            self._newest = Notice(PREEMPTION, asked_s + left_s)

    def _watch(self) -> None:
        while True:
            self.look()
            time.sleep(LOOK_S)
