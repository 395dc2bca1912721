"""Transactions: all or nothing, one writer at a time, one snapshot per reader; what the disk can do to them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.pool import Pool

from orchestrator.errors import StoreError
from orchestrator.model import Job
from orchestrator.store import Store
from providers.clock import VirtualClock

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
    with pytest.raises(StoreError), store.read() as tx:
        tx.add_job(job())
    with store.write() as tx:
        tx.add_job(job())


def test_a_change_that_contradicts_what_is_there_is_a_store_error(store: Store, job: Make, run: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
    with pytest.raises(StoreError, match="contradicts"), store.write() as tx:
        tx.add_job(job())
    with pytest.raises(StoreError, match="contradicts"), store.write() as tx:
        tx.add_run(run(job_id="job_UNKNOWN"))


def test_processes_and_threads_write_in_turns(store: Store, other_process: Start) -> None:
    process = other_process(
        "say('ready'); hear()\n"
        "for _ in range(30):\n"
        "    with store.write() as tx: tx.set_duty('count', (tx.duty('count') or 0) + 1)\n"
        "say('done')"
    )
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()

    def count_here() -> None:
        for _ in range(30):
            with store.write() as tx:
                tx.set_duty("count", (tx.duty("count") or 0) + 1)

    thread = threading.Thread(target=count_here)
    thread.start()
    count_here()
    thread.join()
    assert process.stdout.readline() == "done\n"
    with store.read() as tx:
        assert tx.duty("count") == 90


def test_a_kill_in_the_middle_of_a_write_leaves_no_trace_no_lock_and_what_was_committed(
    store: Store, other_process: Start, job: Make
) -> None:
    with store.write() as tx:
        tx.add_job(job())
    process = other_process(
        "with store.write() as tx: tx.set_duty('done', 7)\n"
        "with store.write() as tx:\n"
        "    tx.set_job_state('job_A', 'running'); tx.set_duty('half', 1)\n"
        "    say('written'); hear()"
    )
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.wait()
    with store.write() as tx:
        assert tx.job("job_A").state == "queued"
        assert tx.duty("half") is None
        assert tx.duty("done") == 7
        tx.set_job_state("job_A", "starting")


def test_a_writer_that_never_gets_its_turn_says_so(url: str, clock: VirtualClock) -> None:
    patient, hasty = Store.open(url, clock), Store.open(f"{url}?timeout=0.05", clock)
    with patient.write(), pytest.raises(StoreError, match="locked") as caught, hasty.write():
        pass
    assert caught.value.hint
    with hasty.write() as tx:
        tx.set_duty("collect", 1)
    patient.close()
    hasty.close()


@contextmanager
def every_new_connection(pragma: str) -> Iterator[None]:
    def run(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(pragma)

    sqlalchemy_event.listen(Pool, "connect", run)
    try:
        yield
    finally:
        sqlalchemy_event.remove(Pool, "connect", run)


def test_a_full_disk_undoes_the_change_and_says_so(url: str, clock: VirtualClock) -> None:
    Store.open(url, clock).close()
    with every_new_connection("PRAGMA max_page_count = 1"):  # SQLite raises what it raises on a full disk
        store = Store.open(url, clock)
        with pytest.raises(StoreError, match="disk is full") as caught, store.write() as tx:
            tx.set_duty("x" * 1_000_000, 1)
        assert "free some space" in caught.value.hint
        with store.read() as tx:
            assert tx.duty("x" * 1_000_000) is None
        store.close()


def test_a_store_deleted_while_in_use_is_noticed(store: Store, url: str) -> None:
    Path(url.removeprefix("sqlite:///")).unlink()
    for open_transaction in (store.read, store.write):
        with pytest.raises(StoreError, match="deleted or replaced") as caught, open_transaction():
            pass
        assert caught.value.hint


def test_a_store_replaced_in_the_middle_of_a_write_is_noticed(store: Store, url: str, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup.db")
    with pytest.raises(StoreError, match="deleted or replaced"), store.write():
        os.replace(tmp_path / "backup.db", url.removeprefix("sqlite:///"))


def test_a_page_damaged_on_disk_is_called_damaged(store: Store, url: str, clock: VirtualClock, job: Make) -> None:
    with store.write() as tx:
        for number in range(200):
            tx.add_job(job(f"job_{number:03}"))
    store.close()
    path = Path(url.removeprefix("sqlite:///"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40_960] + b"\xff" * 40_960)
    damaged = Store.open(url, clock)
    with pytest.raises(StoreError, match="damaged") as caught, damaged.read() as tx:
        tx.jobs()
    assert "backup" in caught.value.hint
    damaged.close()


def test_a_backup_is_a_store_with_everything_in_it(
    store: Store, tmp_path: Path, clock: VirtualClock, job: Callable[..., Job]
) -> None:
    with store.write() as tx:
        tx.add_job(job())
    path = tmp_path / "copy.db"
    store.backup(path)
    copy = Store.open(f"sqlite:///{path}", clock, create=False)
    with copy.read() as tx:
        assert tx.jobs() == [job()]
    assert copy.install_id == store.install_id
    copy.close()


def test_a_backup_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    with pytest.raises(StoreError, match="exists"):
        store.backup(path)
    assert path.read_text() == "precious"


def test_a_backup_into_a_missing_folder_is_explained(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        store.backup(tmp_path / "missing" / "copy.db")
    assert caught.value.hint
