"""Scene: what happens to the requests of one call of a provider: faults, the death of their sender, a pause.

A control plane that dies is not stopped, but nothing that it sends afterwards has an effect, no answer reaches it, and
when its call ends it is gone. So a death between any two requests needs no change of the client library. A pause is an
answer, or the effect of a request, that waits until somebody lets it go on.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from providers.fake import Fault
from tests.clouds.server import LoopbackServer, Request, Response
from tests.rig.clouds.rented import RentedCloud


@dataclass
class Scene:
    """`fault` hits the first request called `at` about each thing ("": the first request of any name). `death` and
    `pause` are edges: `before NAME`, `after NAME`. `together`: requests about several things are sent at once, and
    those about others than the one at which the sender dies take their course."""

    cloud: RentedCloud
    fault: Fault | None = None
    at: str = ""
    death: str = ""
    pause: str = ""
    together: bool = False
    struck: bool = False
    dead: set[str] = field(default_factory=set)
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    _hit: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response | None:
        """None: the connection ends without an answer."""
        name, about = self.cloud.named(request)
        with self._lock:
            fault, gone = None, self.dead and (not self.together or about in self.dead)
            if self.fault is not None and self.at in ("", name) and about not in self._hit:
                self._hit.add(about)
                fault = self.fault
            if gone or fault is not None or {self.death, self.pause} & {f"before {name}", f"after {name}"}:
                self.cloud.disturbed.add((name, about))
            if gone:
                return None
        if self._dies(f"before {name}", about) or not self._may_go_on(f"before {name}"):
            return None
        if fault is Fault.NO_ANSWER:
            return None
        if fault is Fault.THROTTLED:
            return self.cloud.throttled
        if fault is Fault.LATE:
            self.cloud.answer_late(request)
            return None
        answer = self.cloud.answer(request)
        if self._dies(f"after {name}", about) or not self._may_go_on(f"after {name}") or fault is Fault.LOST_REPLY:
            return None
        return answer

    def kill(self) -> None:
        """The sender of these requests is gone for good."""
        self.together = False
        self.dead.add("")
        self.go_on.set()

    def _dies(self, edge: str, about: str) -> bool:
        with self._lock:
            if edge != self.death or about in self.dead:
                return False
            self.struck = True
            self.dead.add(about)
            return True

    def _may_go_on(self, edge: str) -> bool:
        """Wait at a pause. Returns whether the sender lives."""
        if edge == self.pause and not self.held.is_set():
            self.held.set()
            self.go_on.wait()
        return not self.dead or self.together


class StagedServer(LoopbackServer):
    """Answers as the present scene has it; without one, as its cloud does."""

    scene: Scene | None = None

    def answer(self, request: Request) -> tuple[Response, bool] | None:
        scene = self.scene
        found = self.cloud(request) if scene is None else scene.answer(request)
        return None if found is None else (found, False)


@contextmanager
def staged(tls: ssl.SSLContext | None = None) -> Iterator[StagedServer]:
    """A server whose cloud comes later."""
    server = StagedServer(lambda _: Response(404), tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
