"""Transactions: all or nothing, one writer at a time, one snapshot per reader; what the disk can do to them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store
from providers.clock import VirtualClock
from tests.postgres import only_sqlite

Make = Callable[..., Any]
Start = Callable[[str], Any]


def test_a_block_that_raises_writes_nothing(store: Store, job: Make) -> None:
    def submit_and_fail() -> None:
        with store.write() as tx:
            tx.add_job(job())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        submit_and_fail()
    with store.read() as tx:
        assert tx.jobs() == []


def test_a_reader_sees_one_snapshot(store: Store, job: Make) -> None:
    with store.read() as reader:
        assert reader.jobs() == []
        with store.write() as writer:
            writer.add_job(job())
        assert reader.jobs() == []
    with store.read() as reader:
        assert len(reader.jobs()) == 1


def test_a_reader_cannot_write(store: Store, job: Make) -> None:
    with pytest.raises(StoreError, match="changed within a read transaction") as error, store.read() as tx:
        tx.add_job(job())
    assert "store.write()" in error.value.hint
    with store.write() as tx:
        tx.add_job(job())


@only_sqlite
def test_sqlite_prepares_no_statement_again(store: Store, job: Make) -> None:
    """Preparing one takes longer than running most of them."""
    prepared: list[tuple[Any, ...]] = []

    def listen(*what: Any) -> int:
        prepared.append(what)  # the kind of operation first
        return sqlite3.SQLITE_OK

    def go(number: int) -> None:
        with store.write() as tx:
            tx.add_job(job(f"job_{number}", f"gpt-{number}"))
        with store.read() as tx:
            assert len(tx.jobs()) == number

    go(1)
    for engine in (store._backend.reading, store._backend.writing):
        with engine.connect() as connection:
            connection.connection.driver_connection.set_authorizer(listen)  # type: ignore[union-attr]
    go(2)
    assert prepared, "the authorizer is asked whenever a statement is prepared, and its coming made all of them old"
    prepared.clear()
    go(3)
    of_tables = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE}
    assert not [each for each in prepared if each[0] in of_tables]


def test_a_change_that_contradicts_what_is_there_is_a_store_error(store: Store, job: Make, run: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
    with pytest.raises(StoreError, match="constraint"), store.write() as tx:
        tx.add_job(job())
    with pytest.raises(StoreError, match="constraint"), store.write() as tx:
        tx.add_run(run(job_id="job_UNKNOWN"))


def test_processes_and_threads_write_in_turns(store: Store, other_process: Start) -> None:
    process = other_process(
        "say('ready'); hear()\n"
        "for _ in range(30):\n"
        "    with store.write() as tx: tx.set_task_done('count', (tx.task_done_ms('count') or 0) + 1)\n"
        "say('done')"
    )
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()

    def count_here() -> None:
        for _ in range(30):
            with store.write() as tx:
                tx.set_task_done("count", (tx.task_done_ms("count") or 0) + 1)

    thread = threading.Thread(target=count_here)
    thread.start()
    count_here()
    thread.join()
    assert process.stdout.readline() == "done\n"
    with store.read() as tx:
        assert tx.task_done_ms("count") == 90


def test_a_kill_in_the_middle_of_a_write_leaves_no_trace_no_lock_and_what_was_committed(
    store: Store, other_process: Start, job: Make
) -> None:
    with store.write() as tx:
        tx.add_job(job())
    process = other_process(
        "with store.write() as tx: tx.set_task_done('done', 7)\n"
        "with store.write() as tx:\n"
        "    tx.set_job_state('job_A', 'running'); tx.set_task_done('half', 1)\n"
        "    say('written'); hear()"
    )
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.wait()
    with store.write() as tx:
        assert tx.job("job_A").state == "queued"
        assert tx.task_done_ms("half") is None
        assert tx.task_done_ms("done") == 7
        tx.set_job_state("job_A", "starting")


def test_a_writer_that_never_gets_its_turn_says_so(url: str, clock: VirtualClock) -> None:
    patient, hasty = Store.open(url, clock), Store.open(f"{url}{'&' if '?' in url else '?'}timeout=0.05", clock)
    with patient.write(), pytest.raises(StoreError, match="locked") as caught, hasty.write():
        pass
    assert caught.value.hint
    with hasty.write() as tx:
        tx.set_task_done("collect", 1)
    patient.close()
    hasty.close()
