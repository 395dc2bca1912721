"""Crew: a thread that starts the machine's Ray cluster, passes each order to the run's actor, and reads its reports.

Calls into Ray may hang, but the agent's loop, which renews leases and exchanges messages, must not. So the loop only
leaves orders here and reads the newest answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from orchestrator.nodes.actor import LAST
from orchestrator.nodes.cluster import ActorGone, Cluster, Unreachable
from orchestrator.nodes.messages import MOST_BYTES
from orchestrator.nodes.seating import PeerUnreachable

ASK_EVERY_S = 0.1
EAGER_EVERY_S = 0.02
EAGER_S = 5.0  # after an order: the control plane waits for its effect
_AROUND_BYTES = 1 << 10  # the fields of a report besides the run's own

Said = Mapping[str, object]


class Crew(threading.Thread):
    """`failed` is called once with the reason if Ray cannot be started or stops working."""

    def __init__(self, cluster: Cluster, failed: Callable[[str], None]) -> None:
        super().__init__(name="crew", daemon=True)
        self._cluster = cluster
        self._failed = failed
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._actor: Any = None
        self._run_id: str | None = None
        self._pending: Any = None
        self._asked_at = self._eager_until = 0.0
        self._heard: tuple[str | None, Said | None, float] = (None, None, time.monotonic())

    def begin(self, run_id: str, run_dir: str, *, with_setup: bool) -> None:
        """Start the run's actor, which waits for the trainer's process and, if `with_setup`, then for `set_up`."""
        self._heard = (run_id, {"state": "starting"}, time.monotonic())

        def act() -> None:
            self._run_id = run_id
            self._actor = self._cluster.actor(run_dir, with_setup=with_setup)

        self._order(act)

    def set_up(self, setup: Said, secrets: Mapping[str, str]) -> None:
        """Let the started run set up its environment."""

        def act() -> None:
            if self._actor is not None:  # it may have died
                self._actor.set_up.remote(dict(setup), dict(secrets))

        self._order(act)

    def train(self, spec: Said, secrets: Mapping[str, str]) -> None:
        """Let the started run train."""

        def act() -> None:
            if self._actor is not None:  # it may have died
                self._actor.train.remote(dict(spec), dict(secrets))

        self._order(act)

    def show_stacks(self) -> None:
        """Make the run write its stacks to its log."""

        def act() -> None:
            if self._actor is not None:
                self._actor.show_stacks.remote()

        self._order(act)

    def end(self) -> None:
        """End the started run together with its trainer."""

        def act() -> None:
            actor, self._actor, self._pending = self._actor, None, None
            if actor is not None:
                self._cluster.end(actor)

        self._order(act)

    def heard(self, run_id: str) -> tuple[Said | None, float]:
        """The run's last report (None before the first), and how many seconds ago its actor answered."""
        of, said, at = self._heard
        return (said if of == run_id else None), time.monotonic() - at

    def run(self) -> None:
        """Start Ray, then carry out orders and ask the actor, until the process ends."""
        try:
            self._cluster.start()
            self._cluster.gather()
            while (why := self._cluster.dead()) is None:
                self._carry_out()
                self._ask()
            self._give_up(why)
        except PeerUnreachable as error:
            self._give_up(str(error))
        except Exception as error:  # any exception of Ray: nothing runs without it
            self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        """The run ends with the machine: make that its last report, unless it has ended before."""
        run_id, said, _ = self._heard
        if run_id is not None and (said is None or said.get("state") not in LAST):
            self._heard = (run_id, {**(said or {}), "state": "absent", "error": why}, time.monotonic())
        self._failed(why)

    def _order(self, act: Callable[[], None]) -> None:
        self._orders.put(act)

    def _carry_out(self) -> None:
        """Carry out the next order if one arrives before the actor's next poll."""
        eager = time.monotonic() < self._eager_until or self._pending is not None
        try:
            act = self._orders.get(timeout=EAGER_EVERY_S if eager else ASK_EVERY_S)
        except Empty:
            return
        act()
        self._eager_until = time.monotonic() + EAGER_S

    def _ask(self) -> None:
        now = time.monotonic()
        every_s = EAGER_EVERY_S if now < self._eager_until else ASK_EVERY_S
        if self._pending is None and self._actor is not None and now - self._asked_at >= every_s:
            self._asked_at, self._pending = now, self._actor.report.remote()
        if self._pending is None:
            return
        try:
            said = self._cluster.answer(self._pending)
        except Unreachable:  # asked again
            self._pending = None
            return
        except ActorGone:
            self._actor = self._pending = None
            self._heard = (self._run_id, {**(self._heard[1] or {}), "state": "absent"}, now)
            return
        if said is not None:
            self._pending = None
            self._heard = (self._run_id, _passable(said), now)


def _passable(said: object) -> Said:
    """The report, or a `malformed` report if it cannot be passed on."""
    try:
        if isinstance(said, dict) and len(json.dumps(said)) <= MOST_BYTES - _AROUND_BYTES:
            return said
        why = "it is not an object or is too long"
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)[:200]
    return {"state": "malformed", "error": f"its report cannot be passed on: {why}"}
