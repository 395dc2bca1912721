"""Who owns a job: read at each question in a folder, followed by a thread in a bucket."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.clouds.s3 import refusal
from tests.clouds.server import Fault, LoopbackServer
from trainers.checkpoint import store
from trainers.checkpoint.ownership import UNHURRIED, Ownership
from trainers.errors import DamagedCheckpoint, StoreThrottled
from trainers.objects.bucket import BucketStore, open_bucket
from trainers.objects.folder import FolderStore
from trainers.objects.retry import Patience

JOB = "job-1"
ONCE = Patience(tries=1)


class Turns:
    """Stands in for the thread's event: it waits until the test lets it ask once more."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False

    def wait(self, wait_s: float) -> bool:
        self.waited_s.append(wait_s)
        self._waits.release()
        self._go.acquire()
        return self._over

    def set(self) -> None:
        self._over = True
        self._go.release()

    def once(self) -> None:
        self._waits.acquire()
        self._go.release()
        self._waits.acquire()
        self._waits.release()


def followed(root: BucketStore) -> tuple[Ownership, Turns]:
    ownership, turns = Ownership(root, JOB, 1), Turns()
    ownership._over = turns  # type: ignore[assignment]
    return ownership, turns


@pytest.fixture
def followable(bucket_url: str) -> BucketStore:
    return open_bucket(bucket_url, ONCE)


def test_a_folder_is_read_at_each_question(tmp_path: Path) -> None:
    ownership = Ownership(FolderStore(tmp_path), JOB, 1)
    assert ownership.generation() == 0
    for generation in (1, 2):
        store.write_fence(tmp_path, JOB, generation, None)
        assert ownership.generation() == generation
    ownership.close()


def test_a_bucket_is_read_by_a_thread_and_less_often_once_the_run_has_the_job(
    followable: BucketStore, server: LoopbackServer
) -> None:
    ownership, turns = followed(followable)
    assert ownership.generation() == 0
    store.write_fence(followable, JOB, 1, None)
    asked = len(server.requests)
    assert [ownership.generation() for _ in range(100)] == [0] * 100
    assert len(server.requests) == asked
    turns.once()
    assert ownership.generation() == 1
    store.write_fence(followable, JOB, 2, None)
    turns.once()
    assert ownership.generation() == 2
    ownership.close()
    assert turns.waited_s == [followable.poll_s, UNHURRIED * followable.poll_s, followable.poll_s]


def test_the_last_answer_holds_while_the_store_is_away(
    followable: BucketStore, server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults = [Fault(lambda _request: True, answer=refusal(503, "SlowDown"))]
    ownership, turns = followed(followable)
    with pytest.raises(StoreThrottled):
        ownership.generation()  # it was never known
    store.write_fence(followable, JOB, 1, None)
    assert ownership.generation() == 1
    server.faults = [Fault(lambda _request: True, answer=refusal(503, "SlowDown"))]
    turns.once()
    assert ownership.generation() == 1
    assert "unknown at the moment" in caplog.text
    store.job_store(followable, JOB).put("fence/1", b"?")
    turns.once()
    with pytest.raises(DamagedCheckpoint):
        ownership.generation()
    ownership.close()


def test_answers_are_counted_so_that_the_end_of_an_outage_is_seen(
    followable: BucketStore, server: LoopbackServer
) -> None:
    store.write_fence(followable, JOB, 1, None)
    ownership, turns = followed(followable)
    ownership.generation()
    turns.once()
    assert ownership.answers() == 1
    outage = Fault(lambda _: True, times=None, answer=refusal(503, "SlowDown"))
    server.faults.append(outage)
    turns.once()
    turns.once()
    assert ownership.answers() == 1
    server.faults.remove(outage)
    turns.once()
    assert ownership.answers() == 2
    ownership.close()
