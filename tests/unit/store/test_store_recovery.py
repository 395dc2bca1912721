"""What disks and servers do to a store in use: a named error with a remedy, nothing lost, and the same Store works on
when the cause is gone."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import TAKEOVER_S, Store
from providers.clock import VirtualClock
from tests.disks import mounted
from tests.postgres import Server, only_postgres, only_sqlite
from tests.privilege import without_privilege

Make = Callable[..., Any]
Start = Callable[[str], Any]


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def database_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def works(store: Store) -> bool:
    """It takes a change, and tells it."""
    with store.write() as tx:
        tx.set_task_done("works", (tx.task_done_ms("works") or 0) + 1)
    with store.read() as tx:
        return (tx.task_done_ms("works") or 0) > 0


def write(store: Store, meanwhile: Callable[[], object], *, again: bool = False) -> None:
    """A transaction that writes `half`; then something happens; `again` writes once more before it ends."""
    with store.write() as tx:
        tx.set_task_done("half", 1)
        meanwhile()
        if again:
            tx.set_task_done("other half", 1)


def task_done_ms(store: Store, name: str) -> int | None:
    with store.read() as tx:
        return tx.task_done_ms(name)


# A file


def test_a_full_disk_undoes_the_change_and_says_so(tmp_path: Path, clock: VirtualClock) -> None:
    with (
        mounted(tmp_path, "size=2m") as disk,
        closing(Store.open(f"sqlite:///{disk / 'tradewind.db'}", clock)) as store,
    ):
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(StoreError, match="disk is full") as caught, store.write() as tx:
            tx.set_task_done("x" * 1_000_000, 1)
        assert "free some space" in caught.value.hint
        filler.unlink()
        with store.read() as tx:
            assert tx.task_done_ms("x" * 1_000_000) is None
        assert works(store)


@only_sqlite
def test_a_file_that_may_not_grow_undoes_the_change_and_works_on_when_it_may(
    store: Store, other_process: Start
) -> None:
    process = other_process(
        "import resource\n"
        "from orchestrator.errors import StoreError\n"
        "before = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))\n"
        "try:\n"
        "    with store.write() as tx: tx.set_task_done('x' * 1_000_000, 1)\n"
        "except StoreError as error: say(f'{error} | {error.hint}')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, before)\n"
        "with store.write() as tx: tx.set_task_done('small', 2)\n"
        "say('done')"
    )
    said = process.stdout.readline()
    assert "cannot be read or written" in said
    assert "failing disk" in said
    assert "rolled back" in said
    assert process.stdout.readline() == "done\n"
    with store.read() as tx:
        assert (tx.task_done_ms("x" * 1_000_000), tx.task_done_ms("small")) == (None, 2)


@only_sqlite
def test_a_store_moved_away_is_missed_and_nothing_is_lost_when_it_is_back(store: Store, url: str) -> None:
    file, away = file_of(url), file_of(url).with_name("away")
    with store.write() as tx:
        tx.set_task_done("before", 1)  # in the journal, not in the file yet
    file.rename(away)
    for open_transaction in (store.read, store.write):
        with pytest.raises(StoreError, match="was deleted while it was in use") as caught, open_transaction():
            pass
        assert "store restore" in caught.value.hint
    away.rename(file)
    with store.read() as tx:
        assert tx.task_done_ms("before") == 1
    assert works(store)


@only_sqlite
def test_a_store_replaced_in_the_middle_of_a_write_is_noticed(store: Store, url: str, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup.db")
    with pytest.raises(StoreError, match=r"replaced while it was in use; .* may be lost"):
        write(store, lambda: os.replace(tmp_path / "backup.db", file_of(url)))


@only_sqlite
def test_another_store_in_the_place_of_ours_is_left_alone(store: Store, url: str, tmp_path: Path) -> None:
    file, away = file_of(url), tmp_path / "away"
    store.backup(tmp_path / "another.db")
    file.rename(away)
    (tmp_path / "another.db").rename(file)
    as_it_came = file.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match="replaced while it was in use"), store.write():
            pytest.fail("nothing of ours belongs in it")
    assert file.read_bytes() == as_it_came
    os.replace(away, file)
    assert works(store)


def test_a_store_made_read_only_refuses_to_write_until_it_may_again(clock: VirtualClock) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with without_privilege():
            file = Path(folder) / "tradewind.db"
            store = Store.open(f"sqlite:///{file}", clock)
            file.chmod(0o444)
            assert works(store)  # a process that has it open may go on
            store._backend.discard()
            with pytest.raises(StoreError, match="read-only") as caught:
                works(store)
            assert "write permission" in caught.value.hint
            for each in Path(folder).iterdir():
                each.chmod(0o600)
            assert works(store)
            store.close()


@only_sqlite
def test_a_page_damaged_on_disk_is_called_damaged(store: Store, url: str, clock: VirtualClock, job: Make) -> None:
    with store.write() as tx:
        for number in range(200):
            tx.add_job(job(f"job_{number:03}"))
    store.close()
    whole = file_of(url).read_bytes()
    file_of(url).write_bytes(whole[:-40_960] + b"\xff" * 40_960)
    damaged = Store.open(url, clock)
    with pytest.raises(StoreError, match="damaged") as caught, damaged.read() as tx:
        tx.jobs()
    assert "restore BACKUP" in caught.value.hint
    file_of(url).write_bytes(whole)
    with damaged.read() as tx:
        assert len(tx.jobs()) == 200
    damaged.close()


# A server


@only_postgres
def test_a_server_that_was_restarted_is_not_even_noticed(store: Store, postgres: Server) -> None:
    for mode in ("fast", "immediate"):
        assert works(store)
        postgres.stop(mode)
        postgres.start()
    assert works(store)


@only_postgres
def test_a_server_that_is_down_is_named_and_used_again_when_it_is_up(store: Store, postgres: Server) -> None:
    with store.write() as tx:
        tx.set_task_done("kept", 1)
    postgres.stop()
    try:
        for ask in (lambda: works(store), lambda: task_done_ms(store, "kept"), store.leader):
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                ask()
            assert "server is running" in caught.value.hint
    finally:
        postgres.start()
    with store.read() as tx:
        assert tx.task_done_ms("kept") == 1
    assert works(store)


def throw_out(postgres: Server, url: str) -> None:
    postgres.sql(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database_of(url)}'")


@only_postgres
def test_a_connection_lost_in_the_middle_of_a_transaction_undoes_it(store: Store, url: str, postgres: Server) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        write(store, lambda: throw_out(postgres, url), again=True)
    assert task_done_ms(store, "half") is None
    assert works(store)


@only_postgres
def test_a_connection_lost_while_committing_leaves_the_outcome_open_and_says_so(
    store: Store, url: str, postgres: Server
) -> None:
    with pytest.raises(StoreError, match="while a change was being committed") as caught:
        write(store, lambda: throw_out(postgres, url))
    assert "completely or not at all" in caught.value.hint
    assert works(store)


@only_postgres
def test_a_crash_of_the_server_keeps_what_was_committed_and_nothing_else(store: Store, postgres: Server) -> None:
    with store.write() as tx:
        tx.set_task_done("whole", 1)
    with pytest.raises(StoreError):
        write(store, lambda: postgres.stop("immediate"))
    postgres.start()
    assert (task_done_ms(store, "whole"), task_done_ms(store, "half")) == (1, None)


@only_postgres
def test_a_database_made_read_only_refuses_to_write_until_it_may_again(
    store: Store, url: str, postgres: Server
) -> None:
    name = database_of(url)
    postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    throw_out(postgres, url)
    with pytest.raises(StoreError, match="read-only"), store.write() as tx:
        tx.set_task_done("collect", 1)
    postgres.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert works(store)


@only_postgres
def test_a_process_stopped_in_the_middle_of_a_write_blocks_the_others_for_seconds_only(
    store: Store, other_process: Start
) -> None:
    process = other_process(
        "from orchestrator.errors import StoreError\n"
        "try:\n"
        "    with store.write() as tx:\n"
        "        tx.set_task_done('half', 1); say('written'); hear()\n"
        "except StoreError as error: say(f'{error}')"
    )
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGSTOP)
    assert works(store)
    process.stdin.write("go on\n")
    process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    assert "ended an idle transaction" in process.stdout.readline()
    with store.read() as tx:
        assert tx.task_done_ms("half") is None


# Either


def test_a_standby_does_not_count_the_silence_of_the_store_itself(
    store: Store, url: str, clock: VirtualClock, postgres: Server, database: str
) -> None:
    lead = store.campaign("a")
    assert lead is not None
    standby = Store.open(url, clock)
    assert standby.campaign("b") is None
    away = file_of(url).with_name("away")
    postgres.stop() if database == "postgres" else file_of(url).rename(away)
    with pytest.raises(StoreError):
        standby.campaign("b")
    clock.advance(TAKEOVER_S + 1)
    postgres.start() if database == "postgres" else away.rename(file_of(url))
    assert standby.campaign("b") is None
    store.beat(lead)
    clock.advance(TAKEOVER_S - 1)
    assert standby.campaign("b") is None
    standby.close()


def test_threads_recover_each_on_its_own(store: Store, url: str, database: str, postgres: Server) -> None:
    """Connections that were open in several threads when the database went away are all opened again."""
    ready, gone = threading.Barrier(3), threading.Event()
    outcomes: list[bool] = []

    def use() -> None:
        with store.read():
            ready.wait()
            gone.wait()
        outcomes.append(works(store))

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    if database == "postgres":
        throw_out(postgres, url)
    else:
        store._backend.discard()
    gone.set()
    for thread in threads:
        thread.join()
    assert outcomes == [True, True]
