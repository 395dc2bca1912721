"""Opening a store: made, found again, refused with a remedy."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import OperationalError
from sqlalchemy import text

from orchestrator.errors import MissingExtraError, StoreError, StoreVersionError
from orchestrator.store import Store, Tx
from orchestrator.store.backends import sqlite
from orchestrator.store.backends.backend import transaction
from providers.clock import VirtualClock
from tests.postgres import Server, only_postgres, only_sqlite
from tests.privilege import without_privilege


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def database_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def test_a_new_store_has_an_identity_that_it_keeps(url: str, clock: VirtualClock) -> None:
    first = Store.open(url, clock)
    first.close()
    again = Store.open(url, clock, create=False)
    assert again.install_id == first.install_id
    assert again.install_id.startswith("tw-")
    again.close()


def test_two_stores_have_different_identities(tmp_path: Path, clock: VirtualClock) -> None:
    stores = [Store.open(f"sqlite:///{tmp_path}/{name}.db", clock) for name in "ab"]
    assert stores[0].install_id != stores[1].install_id
    for store in stores:
        store.close()


def test_a_second_store_uses_what_was_compiled_for_the_first(tmp_path: Path, clock: VirtualClock) -> None:
    known = []
    for name in "ab":
        store = Store.open(f"sqlite:///{tmp_path}/{name}.db", clock)
        with store.read() as tx:
            assert tx.jobs() == []
        with store.write() as tx:
            tx.add_command("apply", None, {}, "user:me")
        with store.read() as tx:
            assert [each.kind for each in tx.open_commands()] == ["apply"]
        store.close()
        known.append(len(sqlite.COMPILED))
    assert 0 < known[0] == known[1]


def test_folders_are_made_and_nobody_else_may_read_the_file(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "deep" / "er" / "tradewind.db"
    Store.open(f"sqlite:///{path}", clock).close()
    assert path.stat().st_mode & 0o077 == 0


@only_sqlite
def test_an_empty_file_becomes_a_store(url: str, clock: VirtualClock) -> None:
    file_of(url).touch()
    Store.open(url, clock).close()


def test_processes_that_open_a_new_store_at_once_agree(url: str, other_process: Callable[[str], Any]) -> None:
    processes = [other_process("say(store.install_id)") for _ in range(2)]
    assert len({process.stdout.readline() for process in processes}) == 1


@only_sqlite
def test_a_new_store_that_another_process_is_making_is_waited_for(
    url: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        other.execute("CREATE TABLE first_page (id INTEGER)")
        other.execute("DROP TABLE first_page")
        other.execute("BEGIN IMMEDIATE")
        waits: list[float] = []

        def release(seconds: float) -> None:
            waits.append(seconds)
            if other.in_transaction:
                other.execute("COMMIT")

        # In the one module: other threads of these tests sleep, too.
        monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=time.monotonic, sleep=release))
        Store.open(url, clock).close()
        assert waits


@only_sqlite
def test_the_file_is_in_wal_mode_and_connections_are_strict(store: Store) -> None:
    with store.read() as tx:
        pragmas = {
            name: tx._connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 30_000}


@pytest.mark.parametrize("writes", [False, True])
def test_a_connection_in_use_while_the_store_is_closed_is_closed_after_its_transaction(
    url: str, clock: VirtualClock, writes: bool
) -> None:
    store = Store.open(url, clock)
    with transaction(store._backend, writes=writes) as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        store.close()
        assert connection.scalar(text("SELECT 1")) == 1
    with pytest.raises((sqlite3.ProgrammingError, OperationalError), match="closed"):
        raw.execute("SELECT 1")


def test_a_missing_store_is_not_made_when_only_read(url: str, clock: VirtualClock) -> None:
    with pytest.raises(StoreError, match="no store") as caught:
        Store.open(url, clock, create=False)
    assert caught.value.hint
    if url.startswith("sqlite"):
        assert not file_of(url).exists()


@only_sqlite
def test_an_empty_file_is_no_store_when_only_read(url: str, clock: VirtualClock) -> None:
    file_of(url).touch()
    with pytest.raises(StoreError, match="no store"):
        Store.open(url, clock, create=False)
    assert file_of(url).read_bytes() == b""


@only_sqlite
def test_a_store_of_a_newer_version_is_refused_untouched(url: str, clock: VirtualClock) -> None:
    Store.open(url, clock).close()
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.execute("UPDATE schema_revision SET version_num = '20991231_0000_ffffff'")
        connection.commit()
    before = file_of(url).read_bytes()
    with pytest.raises(StoreVersionError, match="newer version") as caught:
        Store.open(url, clock)
    assert "upgrade" in caught.value.hint
    assert file_of(url).read_bytes() == before
    assert [path.name for path in file_of(url).parent.iterdir()] == [file_of(url).name]


@only_sqlite
def test_the_database_of_another_program_is_refused_untouched(url: str, clock: VirtualClock) -> None:
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    before = file_of(url).read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(url, clock)
    assert file_of(url).read_bytes() == before


@only_sqlite
def test_a_file_that_is_no_database_is_refused_untouched(url: str, clock: VirtualClock) -> None:
    file_of(url).write_text("Dear diary, today I trained a model. " * 100)
    before = file_of(url).read_bytes()
    with pytest.raises(StoreError, match="not a database") as caught:
        Store.open(url, clock)
    assert caught.value.hint
    assert file_of(url).read_bytes() == before


@only_sqlite
def test_a_truncated_store_is_called_damaged(url: str, clock: VirtualClock) -> None:
    Store.open(url, clock).close()
    with file_of(url).open("r+b") as file:
        file.truncate(4096)
    with pytest.raises(StoreError, match="damaged") as caught:
        Store.open(url, clock)
    assert "restore BACKUP" in caught.value.hint


def test_a_folder_is_no_store(tmp_path: Path, clock: VirtualClock) -> None:
    with pytest.raises(StoreError, match="not a file"):
        Store.open(f"sqlite:///{tmp_path}", clock)


def test_a_parent_that_is_a_file_is_explained(tmp_path: Path, clock: VirtualClock) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Store.open(f"sqlite:///{tmp_path}/file/tradewind.db", clock)
    assert caught.value.hint


@pytest.fixture
def shared_url() -> Iterator[str]:
    """A store in a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield f"sqlite:///{folder}/tradewind.db"


@pytest.mark.parametrize(
    ("mode", "message"), [(0o444, "read-only"), (0o000, "cannot be read")], ids=["read-only", "unreadable"]
)
def test_a_store_that_this_user_may_not_write_is_refused(
    shared_url: str, clock: VirtualClock, mode: int, message: str
) -> None:
    Store.open(shared_url, clock).close()
    file_of(shared_url).chmod(mode)
    with without_privilege(), pytest.raises(StoreError, match=message) as caught:
        Store.open(shared_url, clock)
    assert caught.value.hint


def test_a_folder_that_this_user_may_not_write_is_explained(shared_url: str, clock: VirtualClock) -> None:
    file_of(shared_url).parent.chmod(0o555)
    with without_privilege(), pytest.raises(StoreError, match="cannot be opened") as caught:
        Store.open(shared_url, clock)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tradewind.db", "not a store URL"),
        ("mysql://host/db", "mysql"),
        ("sqlite://", "in memory"),
        ("sqlite:////tmp/x.db?timeout=soon", "not a number"),
    ],
)
def test_an_address_that_names_no_store_is_explained(address: str, message: str, clock: VirtualClock) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(address, clock)
    assert caught.value.hint


def test_postgres_without_its_extra_names_the_command_that_installs_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError) as caught:
        Store.open("postgresql://localhost/tradewind", clock)
    assert "tradewind[postgres]" in caught.value.hint


def test_an_up_to_date_store_is_opened_without_alembic_and_without_an_orm(store: Store, url: str) -> None:
    code = (
        "import sys; from orchestrator.store import Store; from providers.clock import SystemClock\n"
        f"Store.open({url!r}, SystemClock()).close()\n"
        "print([name for name in ('alembic', 'sqlalchemy.orm', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("[]" if url.startswith("sqlite") else "['psycopg']")


@only_postgres
def test_a_database_of_a_newer_version_is_refused_untouched(url: str, postgres: Server, clock: VirtualClock) -> None:
    Store.open(url, clock).close()
    name = database_of(url)
    postgres.sql("UPDATE schema_revision SET version_num = '20991231_0000_ffffff'", name)
    before = postgres.dump(name)
    with pytest.raises(StoreVersionError, match="newer version") as caught:
        Store.open(url, clock)
    assert "upgrade" in caught.value.hint
    assert postgres.dump(name) == before


@only_postgres
def test_a_database_with_tables_of_another_program_is_refused_untouched(
    url: str, postgres: Server, clock: VirtualClock
) -> None:
    postgres.sql("CREATE TABLE cats (name TEXT)", database_of(url))
    before = postgres.dump(database_of(url))
    with pytest.raises(StoreError, match="another program"):
        Store.open(url, clock)
    assert postgres.dump(database_of(url)) == before


@only_postgres
def test_a_database_or_a_server_that_is_not_there_is_explained(url: str, clock: VirtualClock) -> None:
    for wrong in (url.replace(database_of(url), "nowhere"), url.replace("host=/tmp", "host=/tmp/nowhere")):
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            Store.open(wrong, clock)
        assert "createdb" in caught.value.hint


@only_postgres
def test_connections_see_snapshots_or_take_turns_and_neither_waits_for_ever(store: Store) -> None:
    settings = ("transaction_isolation", "transaction_read_only", "idle_in_transaction_session_timeout", "lock_timeout")

    def shown(tx: Tx) -> list[str]:
        return [str(tx._connection.exec_driver_sql(f"SHOW {name}").scalar()) for name in settings]

    with store.read() as tx:
        assert shown(tx) == ["repeatable read", "on", "1min", "0"]
    with store.write() as tx:
        assert shown(tx) == ["read committed", "off", "4s", "30s"]
