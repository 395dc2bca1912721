"""A leader whose thread is busy goes on beating; one that hangs does not; one that is stopped or dead cannot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from orchestrator.errors import NotLeaderError, StoreError
from orchestrator.store import Store
from orchestrator.store.leadership.pulse import Pulse
from tests.postgres import only_postgres

WAIT_S = 20.0

CONTROL_PLANE = """
import threading
from orchestrator.errors import NotLeaderError
lead = None
while lead is None:
    lead = store.campaign(str(os.getpid()))
    if lead is None: threading.Event().wait(0.1)
with store.pulse(lead):
    say('leads')
    while (word := hear().strip()) != 'end':
        try:
            with store.write(lead) as tx: tx.set_task_done('acted', os.getpid())
            say('acted')
        except NotLeaderError: say('fenced')
"""
"""Stands by, leads when it can, and acts on request."""


class Beats:
    """Counts beats, and raises what it is given, one a beat."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.arrived = threading.Semaphore(0)

    def __call__(self) -> None:
        self.arrived.release()
        if self._errors:
            raise self._errors.pop(0)

    def seen(self, count: int) -> bool:
        return all(self.arrived.acquire(timeout=WAIT_S) for _ in range(count))


def test_it_beats_while_the_leaders_thread_is_busy() -> None:
    beats = Beats()
    pulse = Pulse(beats, every_s=0.001)
    pulse.start()
    assert beats.seen(3)
    pulse.stop()


def test_it_outlives_a_store_that_does_not_answer_but_not_the_leadership() -> None:
    beats = Beats(StoreError("down"), StoreError("down"), NotLeaderError("deposed"))
    pulse = Pulse(beats, every_s=0.001)
    pulse.start()
    assert beats.seen(3)
    pulse.stop()
    assert not beats.arrived.acquire(blocking=False)


def test_it_does_not_beat_for_a_leader_that_hangs_until_that_shows_life_again() -> None:
    beats, now = Beats(), 0.0
    pulse = Pulse(beats, every_s=0.001, hang_s=45.0, monotonic=lambda: now)
    now = 46.0
    pulse.start()
    assert not beats.arrived.acquire(timeout=0.1)
    pulse.progress()
    assert beats.seen(1)
    pulse.stop()


def test_beats_of_both_threads_go_through(store: Store) -> None:
    lead = store.campaign("a")
    assert lead is not None
    with store.pulse(lead):
        for _ in range(20):
            store.beat(lead)
            with store.write(lead) as tx:
                tx.set_task_done("acted", 1)
    info = store.leader()
    assert info is not None
    assert info.epoch == lead.epoch


@only_postgres
def test_of_two_control_planes_one_acts_and_the_other_takes_over_when_it_is_stopped_or_killed(
    store: Store, other_process: Callable[[str], Any]
) -> None:
    def tell(process: Any, word: str) -> str:
        process.stdin.write(word + "\n")
        process.stdin.flush()
        return str(process.stdout.readline()).strip()

    def acted() -> int | None:
        with store.read() as tx:
            return tx.task_done_ms("acted")

    first = other_process(CONTROL_PLANE)
    assert first.stdout.readline() == "leads\n"
    second = other_process(CONTROL_PLANE)
    assert tell(first, "act") == "acted"
    first.send_signal(signal.SIGSTOP)
    assert second.stdout.readline() == "leads\n"
    assert tell(second, "act") == "acted"
    first.send_signal(signal.SIGCONT)
    assert tell(first, "act") == "fenced"
    assert acted() == second.pid
    third = other_process(CONTROL_PLANE)
    second.kill()
    assert third.stdout.readline() == "leads\n"
    assert tell(third, "act") == "acted"
    assert tell(first, "act") == "fenced"
    assert acted() == third.pid
