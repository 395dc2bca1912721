"""The notices of GCP, on the machine itself: a request to its metadata server that hangs until there is one.

Each spot machine is launched with a notice of NOTICE_S, the longest that GCP gives; then the operating system is shut
down, which may take 30 s more. Without that field GCP would give only these 30 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from providers.gcp.on_machine import MetadataServer
from providers.notice import Notice

NOTICE_S = 120
HANGS_S = 60
AGAIN_S = 1.0
PREEMPTION = "preemption"
_PATH = "instance/preempted"


class PreemptionNotices:
    """The notice of this machine, as it was last seen."""

    def __init__(self, server: MetadataServer | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._server = MetadataServer() if server is None else server
        self._monotonic = monotonic
        self._newest: Notice | None = None
        self._etag = ""

    def __call__(self) -> Notice | None:
        """The newest notice, without asking."""
        return self._newest

    def started(self) -> PreemptionNotices:
        """Look from now on, until the process ends."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()
        return self

    def look(self, longest_s: int = HANGS_S) -> bool:
        """Wait for a change, at most `longest_s`. False: no answer."""
        try:
            said, self._etag = self._server.wait(_PATH, self._etag, longest_s)
        except (OSError, ValueError):
            return False
        if said == "TRUE" and self._newest is None:
            self._newest = Notice(PREEMPTION, self._monotonic() + NOTICE_S)
        return said is not None

    def _watch(self) -> None:
        while True:
            if not self.look():
                time.sleep(AGAIN_S)
