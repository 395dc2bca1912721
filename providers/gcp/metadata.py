"""GCP's notices, read on the machine itself: a request to its metadata server that waits until there is one.

Each spot machine is launched with a notice of NOTICE_S, the longest that GCP gives; then the operating system is shut
down, which may take 30 s more. Without this launch setting, GCP would give only these 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from providers.gcp.on_machine import MetadataServer
from providers.notice import NoticeWatch

NOTICE_S = 120
HANGS_S = 60
AGAIN_S = 1.0
_PATH = "instance/preempted"


class PreemptionNotices(NoticeWatch):
    """The notice of this machine."""

    def __init__(self, server: MetadataServer | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(monotonic)
        self._server = MetadataServer() if server is None else server
        self._etag = ""

    def look(self, longest_s: int = HANGS_S) -> float:
        """Wait for a change, at most `longest_s`; then ask again at once, but not if there was no answer."""
        try:
            said, self._etag = self._server.wait(_PATH, self._etag, longest_s)
        except (OSError, ValueError):
            return AGAIN_S
        if said == "TRUE":
            self._found(self._monotonic() + NOTICE_S)
        return AGAIN_S if said is None else 0.0
