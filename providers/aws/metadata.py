"""AWS's notices, read on the machine itself: a separate thread queries the metadata service every second.

AWS announces the end of a spot machine two minutes ahead. The announced time is compared with the service's own time,
so the machine's wall clock does not matter. Before that, AWS may send a rebalance recommendation: the machine is more
likely to be preempted than usual (docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from providers.aws.on_machine import Imds, instant
from providers.notice import NoticeWatch

LOOK_S = 1.0
_PATH = "/latest/meta-data/spot/instance-action"
_RECOMMENDATION = "/latest/meta-data/events/recommendations/rebalance"


class SpotNotices(NoticeWatch):
    """The notice of this machine."""

    def __init__(self, imds: Imds | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(monotonic)
        self._imds = Imds() if imds is None else imds

    def look(self) -> float:
        """Ask once. An answer without a notice, or no answer, changes nothing."""
        asked_s = self._monotonic()
        try:
            said, now = self._imds.get(_PATH)
            if said is not None:
                self._found(asked_s + (instant(json.loads(said)["time"]) - now).total_seconds())
            elif self() is None and self._imds.get(_RECOMMENDATION)[0] is not None:
                self._warned()
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return LOOK_S
