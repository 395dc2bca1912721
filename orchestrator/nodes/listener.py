"""Listener: a thread that keeps the newest report of each machine that the control plane asks about.

The control plane's loop never waits for a store: it reads the newest report and its age.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from orchestrator.nodes.channel import Channel, Garbled, Pace
from orchestrator.nodes.messages import NodeFacts, NodeReport
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore

EAGER_S = 5.0  # after an order: the control plane waits for its effect
CALM_EVERY_S = 0.1
FORGET_S = 600.0
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Heard:
    """The known state of a machine. `since_s` and `read_s` are when its newest report (or the lack of one) was first
    and last seen (time.monotonic(); 0: never): time without a successful read does not count as silence. `garbled` says
    why its newest object is not valid, `trouble` why the store could not be read just now."""

    facts: NodeFacts | None = None
    report: NodeReport | None = None
    since_s: float = 0.0
    read_s: float = 0.0
    garbled: str | None = None
    trouble: ObjectStoreError | None = None


@dataclass(slots=True)
class _Watched:
    asked_at: float
    eager_until: float
    looked_at: float = float("-inf")
    heard: Heard = Heard()


class Listener:
    """Polls the machines that were queried within FORGET_S."""

    def __init__(self, store: ObjectStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic, self._pace = store, monotonic, Pace.of(store)
        self._calm_s = max(CALM_EVERY_S, self._pace.poll_s)
        self._watched: dict[str, _Watched] = {}
        self._changing = threading.Lock()
        self._wake, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None

    def heard(self, token: str) -> Heard:
        """The known state of this machine; it is polled from the first call on."""
        now = self._monotonic()
        with self._changing:
            watched = self._watched.get(token)
            if watched is None:
                watched = self._watched[token] = _Watched(now, now + EAGER_S)
                self._wake.set()
            watched.asked_at = now
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
                self._thread.start()
            return watched.heard

    def expect(self, token: str) -> None:
        """Poll this machine often for a while."""
        self.heard(token)
        with self._changing:
            self._watched[token].eager_until = self._monotonic() + EAGER_S
            self._wake.set()

    def close(self) -> None:
        """Stop polling."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(AT_ONCE, "listener") as pool:
            while not self._closed:
                self._wake.wait(self._pause_s())
                self._wake.clear()
                list(pool.map(lambda each: self.poll(*each), self._due()))

    def _pause_s(self) -> float:
        """Seconds until the next machine is due."""
        now = self._monotonic()
        with self._changing:
            eager = any(now < each.eager_until for each in self._watched.values())
        return self._pace.eager_s if eager else self._calm_s

    def _due(self) -> list[tuple[str, _Watched]]:
        now = self._monotonic()
        with self._changing:
            for token in [token for token, each in self._watched.items() if now - each.asked_at > FORGET_S]:
                del self._watched[token]
            return [
                (token, each)
                for token, each in self._watched.items()
                if now - each.looked_at >= (self._pace.eager_s if now < each.eager_until else self._calm_s)
            ]

    def poll(self, token: str, watched: _Watched) -> None:
        """Read one machine's objects."""
        channel, before, now = Channel(self._store, token), watched.heard, self._monotonic()
        watched.looked_at = now
        try:
            report = channel.report()
            facts = before.facts
            if facts is None or (report is not None and report.boot != facts.boot):
                facts = channel.facts()
        except Garbled as error:
            since_s = before.since_s if before.garbled is not None else now
            watched.heard = replace(before, garbled=str(error), since_s=since_s, read_s=now, trouble=None)
            return
        except ObjectStoreError as error:
            watched.heard = replace(before, trouble=error)
            return
        if _precedes(report, before.report):
            report = before.report
        same = report == before.report and before.garbled is None and before.read_s > 0.0
        watched.heard = Heard(facts, report, before.since_s if same else now, now)


def _precedes(report: NodeReport | None, known: NodeReport | None) -> bool:
    """Whether a report is earlier than one that is already known: a delayed write has replaced the newer one."""
    return report is not None and known is not None and report.boot == known.boot and report.beat < known.beat
