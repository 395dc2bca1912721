"""Backups: of a store in use, into either kind of database, in one stroke, never over one that somebody acts on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import Connection, text, update

from orchestrator.errors import NotLeaderError, StoreError, StoreVersionError
from orchestrator.store import Leadership, Store
from orchestrator.store.backends.files import temporary_file
from orchestrator.store.leadership import leader as leading
from orchestrator.store.recovery.backups import back_up, restore
from orchestrator.store.recovery.examine import examine
from orchestrator.store.schema import leader
from orchestrator.store.transaction import stream
from providers.clock import VirtualClock
from providers.price import PricePoint
from tests.postgres import Server, only_postgres, only_sqlite
from tests.privilege import without_privilege

Make = Callable[..., Any]
NOW_MS = 1_800_000_000_000


@pytest.fixture
def full(store: Store, job: Make, run: Make, migration: Make, offer: Make, event: Make, entry: Make) -> Store:
    """With a row in every table."""
    with store.write() as tx:
        tx.add_job(job())
        tx.add_run(run(last_loss=0.1 + 0.2, useful_s=1e-9))
        tx.add_migration(migration())
        tx.put_offers("fake", [offer()])
        tx.add_prices([PricePoint(offer().id, 2**53 + 1, 1, 1, "test")])
        tx.add_availability(offer().id, 1, "refused")
        tx.record_poll("fake", 1, 2, 1, 1, "ünïcödé \N{SNOWMAN}")
        for number in range(3):
            tx.add_event(event(f"evt_{number}", data={"x": 0.1, "ok": True}))
        tx.add_entries([entry("ent_A", amount=-(2**53) - 1)])
        tx.add_perf("job_A", None, 1, 0.1, 10, 5)
        tx.add_command("pause", "job_A", {"a": 1}, "user:ann")
        tx.set_task_done("collect", 5)
    return store


def content(store: Store) -> list[Any]:
    with store.read() as tx:
        return [
            *(store.install_id, tx.jobs(), tx.runs(), tx.migrations(), tx.offers(), tx.eligible_as_of(9)),
            *(tx.availability(0, 9), tx.polls(), tx.events(), tx.entries(), tx.perf(), tx.open_commands()),
            tx.task_done_ms("collect"),
        ]


def opened(url: str, clock: VirtualClock) -> list[Any]:
    store = Store.open(url, clock, create=False)
    found = content(store)
    store.close()
    return found


_NAMES = count(1)


@pytest.fixture
def elsewhere(postgres: Server, tmp_path: Path) -> dict[str, str]:
    """An empty place of each kind."""
    return {"sqlite": f"sqlite:///{tmp_path}/else/where.db", "postgres": postgres.create(f"elsewhere_{next(_NAMES)}")}


def test_a_backup_has_everything_in_it_and_goes_into_either_kind_of_database(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock, elsewhere: dict[str, str], event: Make
) -> None:
    path = tmp_path / "backup.db"
    made = back_up(url, path)
    assert (made.install_id, path.stat().st_mode & 0o777) == (full.install_id, 0o600)
    assert [each for each in tmp_path.iterdir() if each.name.startswith("backup.db")] == [path]
    before = content(full)
    for target in elsewhere.values():
        restored = restore(target, path, NOW_MS)
        assert (restored.backup, restored.kept) == (made, None)
        assert opened(target, clock) == before
        with examine(target) as found:
            assert [found.differences(), found.lost_protection(), found.dangling(), found.damage()] == [[], [], [], []]
        copy = Store.open(target, clock)
        with copy.write() as tx:
            tx.add_event(event("evt_next"))
            assert [each.id for each in tx.events()] == ["evt_0", "evt_1", "evt_2", "evt_next"]
        copy.close()


def test_a_restore_takes_the_place_and_keeps_what_was_there(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock, database: str, postgres: Server
) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    before = content(full)
    with full.write() as tx:
        tx.set_task_done("collect", 99)
    if database == "sqlite":
        full.close()
    kept = restore(url, path, NOW_MS).kept
    assert opened(url, clock) == before
    assert kept is not None
    if database == "sqlite":
        assert opened(f"sqlite:///{kept}", clock)[-1] == 99
    else:
        schema, name = kept.removeprefix("schema "), url.partition("@/")[2].partition("?")[0]
        assert postgres.sql(f"SELECT last_ok_ms FROM {schema}.periodic_task", name) == [(99,)]
        assert content(full) == before  # a process that had it open sees the restored one
        assert restore(url, path, NOW_MS).kept == f"{kept}_2"


def test_no_leadership_from_before_outlives_a_restore(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    later = full.campaign("later than the backup")
    assert later is not None
    full.resign(later)
    full.close()
    restore(url, path, NOW_MS)
    store = Store.open(url, clock)
    assert store.leader() is None
    new = store.campaign("new")
    assert new is not None
    for epoch in (later.epoch, later.epoch + 1, later.epoch + 2):
        with pytest.raises(NotLeaderError), store.write(Leadership("zombie", epoch)):
            pass
    with store.write(new):
        pass
    store.close()


@only_postgres
def test_a_server_gives_a_copy_more_time_between_two_statements_than_a_writer(
    full: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk or a busy host can hold up a copy for longer than a writer may be idle."""
    path = tmp_path / "backup.db"
    back_up(url, path)
    full.close()
    limits: list[str] = []

    def watched(target: Connection, *asked: Any) -> None:
        limits.append(target.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one())
        stream(target, *asked)

    monkeypatch.setattr("orchestrator.store.recovery.copy.stream", watched)
    assert restore(url, path, NOW_MS).kept
    assert set(limits) == {"10min"}


def refused(url: str, path: Path, match: str, kind: type[StoreError] = StoreError) -> None:
    with pytest.raises(kind, match=match) as caught:
        restore(url, path, NOW_MS)
    assert caught.value.hint


def test_nothing_is_restored_while_a_control_plane_leads(full: Store, url: str, tmp_path: Path) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    lead = full.campaign("me")
    assert lead is not None
    refused(url, path, f"the control plane me .process {os.getpid()} ")
    with full.write(lead) as tx:
        assert tx.task_done_ms("collect") == 5


@only_postgres
def test_a_control_plane_of_another_machine_is_known_by_its_beat(
    full: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    lead = full.campaign("far away")
    assert lead is not None
    with full.write() as tx:
        tx._connection.execute(update(leader).values(realm="another boot/1"))
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.05):
            full.beat(lead)

    thread = threading.Thread(target=live)
    thread.start()
    refused(url, path, "the control plane far away")
    ended.set()
    thread.join()
    monkeypatch.setattr(leading, "TAKEOVER_S", 0.0)
    assert restore(url, path, NOW_MS).kept is not None
    with pytest.raises(NotLeaderError):
        full.beat(lead)


@only_sqlite
def test_nothing_is_restored_while_another_process_has_the_file_open(full: Store, url: str, tmp_path: Path) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    refused(url, path, "another process uses the store")
    assert content(full)[-1] == 5
    full.close()
    uses = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM job'); print(); input()"
    command = [sys.executable, "-u", "-c", uses, url.removeprefix("sqlite:///")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(StoreError) as caught:
            restore(url, path, NOW_MS)
        other.kill()
    assert caught.value.hint.startswith(f"stop process {other.pid} ({sys.executable} -u -c ")
    assert caught.value.hint.endswith("), then restore again")
    assert restore(url, path, NOW_MS).kept is not None


@only_sqlite  # it is looked at before the database that it is for
@pytest.mark.parametrize(
    "ruin",
    [
        "missing",
        "text",
        "cut",
        "unprotected",
        "newer",
        "empty",
        "foreign",
        "another program's",
        "no revision",
        "odd revision",
        "no meta",
        "no id",
        "no offers",
    ],
)
def test_a_backup_that_is_not_sound_is_refused_and_nothing_is_changed(
    full: Store, url: str, tmp_path: Path, ruin: str
) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    full.close()
    match ruin:
        case "missing":
            path.unlink()
        case "text":
            path.write_text("Dear diary. " * 1000)
        case "cut":
            path.write_bytes(path.read_bytes()[:-50_000])
        case "empty":
            path.write_bytes(b"")
        case "another program's":
            path.unlink()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE theirs (x)")
        case _:
            change = {
                "unprotected": "DROP TRIGGER event_refuses_delete",
                "no revision": "DROP TABLE schema_revision",
                "odd revision": "UPDATE schema_revision SET version_num = 'x'",
                "no meta": "DROP TABLE meta",
                "no id": "DELETE FROM meta",
                "no offers": "DELETE FROM offer",
                "newer": "UPDATE schema_revision SET version_num = '20991231_0000_ffffff'",
                "foreign": "UPDATE meta SET value = 'tw-0000000000000000' WHERE key = 'install_id'",
            }[ruin]
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(change)
                connection.commit()
    words = {
        "missing": "there is no backup",
        "text": "not a database",
        "cut": "damaged",
        "unprotected": "rows of event can be changed",
        "newer": "written by a newer version",
        "empty": "is empty",
        "foreign": "of another installation",
        "another program's": "contains the tables of another program",
        "no revision": "its schema revision is missing",
        "odd revision": "'x' is not a schema revision",
        "no meta": "no such table: meta",
        "no id": "is damaged",
        "no offers": "refer to a missing offer",
    }
    refused(url, path, words[ruin], StoreVersionError if ruin == "newer" else StoreError)
    if ruin not in ("missing", "newer", "foreign"):
        with pytest.raises(StoreError) as caught:
            restore(url, path, NOW_MS)
        assert str(caught.value).startswith(f"the backup {path} ")
        assert ".tradewind-part" not in str(caught.value)
        assert caught.value.hint == "use another backup; the store is unchanged"
    with examine(url) as found:
        assert found.connection.execute(text("SELECT last_ok_ms FROM periodic_task")).scalar_one() == 5
    assert not [each for each in tmp_path.iterdir() if "restoring" in each.name or "replaced" in each.name]


@only_sqlite
def test_a_backup_that_this_user_may_not_read_is_not_called_a_bad_one(full: Store, url: str) -> None:
    full.close()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "backup.db")
        back_up(url, path)
        with without_privilege(), pytest.raises(StoreError, match="cannot be read by this user") as caught:
            restore(url, path, NOW_MS)
    assert caught.value.hint == f"chown or chmod u+r {path}"


@only_sqlite
@pytest.mark.parametrize("ruin", ["damaged", "deleted"])
def test_a_store_damaged_or_deleted_is_replaced(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock, ruin: str
) -> None:
    path, file = tmp_path / "backup.db", Path(url.removeprefix("sqlite:///"))
    back_up(url, path)
    before = content(full)
    full.close()
    if ruin == "damaged":
        file.write_bytes(b"\xff" * 50_000)
    else:
        file.unlink()
    file.with_name("tradewind.db-wal").write_bytes(b"the journal of the store before")
    kept = restore(url, path, NOW_MS).kept
    assert opened(url, clock) == before
    assert (kept is not None) == (ruin == "damaged")
    if kept is not None:
        assert Path(kept).read_bytes() == b"\xff" * 50_000


@only_sqlite
@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_a_folder_in_the_way_of_a_restore_is_named_and_once_moved_away_it_works(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock, ending: str
) -> None:
    path, file = tmp_path / "backup.db", Path(url.removeprefix("sqlite:///"))
    back_up(url, path)
    before = content(full)
    full.close()
    file.unlink()
    in_the_way = file.with_name(file.name + ending)
    in_the_way.mkdir()
    with pytest.raises(StoreError, match=f"{in_the_way} is ") as caught:
        restore(url, path, NOW_MS)
    assert "move it away" in caught.value.hint
    in_the_way.rmdir()
    restore(url, path, NOW_MS)
    assert opened(url, clock) == before


@only_sqlite
def test_a_process_that_had_a_deleted_store_open_does_not_act_on_the_one_restored_in_its_place(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "backup.db"
    back_up(url, path)
    lead = full.campaign("me")
    assert lead is not None
    before = content(full)
    Path(url.removeprefix("sqlite:///")).unlink()
    with pytest.raises(StoreError, match="deleted"):
        full.beat(lead)
    restore(url, path, NOW_MS)
    with pytest.raises(StoreError, match="replaced while it was in use") as caught:
        full.beat(lead)
    assert "tradewind down" in caught.value.hint
    full.close()
    assert opened(url, clock) == before
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@only_sqlite
@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_leftovers_of_a_deleted_store_are_not_replayed_into_the_restored_one(
    full: Store, url: str, clock: VirtualClock, tmp_path: Path, ending: str
) -> None:
    expected = content(full)
    back_up(url, tmp_path / "backup.db")
    full.close()
    path = Path(url.removeprefix("sqlite:///"))
    left = path.with_name(path.name + ending)
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as killed:  # in the middle of a change
        killed.execute(f"PRAGMA journal_mode = {'WAL' if ending == '-wal' else 'DELETE'}")
        killed.execute("PRAGMA synchronous = OFF")
        killed.execute("CREATE TABLE another (value)")
        killed.execute("BEGIN")
        killed.execute("INSERT INTO another VALUES (zeroblob(100000))")
        if ending == "-wal":
            killed.execute("COMMIT")
        as_left = left.read_bytes()
    path.unlink()
    left.write_bytes(as_left)
    restore(url, tmp_path / "backup.db", NOW_MS)
    assert opened(url, clock) == expected


@only_sqlite
def test_the_store_itself_is_not_a_backup_of_it(full: Store, url: str) -> None:
    full.close()
    refused(url, Path(url.removeprefix("sqlite:///")), "is the store itself")


def test_a_backup_overwrites_nothing(store: Store, url: str, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("precious")
    for attempt in (lambda: store.backup(path), lambda: back_up(url, path)):
        with pytest.raises(StoreError, match="exists"):
            attempt()
    assert path.read_text() == "precious"


def test_a_backup_into_a_missing_folder_is_explained(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be") as caught:
        store.backup(tmp_path / "missing" / "copy.db")
    assert caught.value.hint


def test_an_empty_store_has_no_backup(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        back_up(url, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def killed(code: str, *arguments: object) -> None:
    """Run `code` in a process that kills itself in the middle."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=False)
    assert done.returncode == -signal.SIGKILL


DIE_IN = """
import os, signal, sys
from pathlib import Path
from orchestrator.store.backends import files
from orchestrator.store.recovery import backups
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
{where} = die
url, path = sys.argv[1:]
backups.{what}
"""
BACK_UP, RESTORE = "back_up(url, Path(path))", "restore(url, Path(path), 1)"


@only_sqlite
@pytest.mark.parametrize(
    ("what", "where"),
    [
        (BACK_UP, "files.os.replace"),
        (RESTORE, "backups._replace_file"),
        (RESTORE, "backups.sync"),
        (RESTORE, "backups.os.replace"),
    ],
)
def test_what_a_killed_backup_or_restore_leaves_is_removed_by_the_next_and_nothing_is_a_second_name_of_the_store(
    full: Store, url: str, tmp_path: Path, what: str, where: str, clock: VirtualClock
) -> None:
    path, file = tmp_path / "backup.db", Path(url.removeprefix("sqlite:///"))
    before = content(full)
    if what is RESTORE:
        back_up(url, path)
    full.close()
    killed(DIE_IN.format(what=what, where=where), url, path)
    assert file.stat().st_nlink == 1
    assert opened(url, clock) == before
    assert [each for each in tmp_path.iterdir() if "tradewind-part" in each.name]
    back_up(url, tmp_path / "another.db")
    assert not [each for each in tmp_path.iterdir() if "tradewind-part" in each.name]


@only_sqlite
def test_what_a_living_backup_writes_to_is_left_alone(full: Store, url: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from orchestrator.store.backends.files import temporary_file\n"
        "with temporary_file(Path(sys.argv[1])) as made: print(made, flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "slow.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout is not None
        theirs = Path(living.stdout.readline().strip())
        with temporary_file(tmp_path / "mine.db") as mine:
            back_up(url, tmp_path / "quick.db")
            assert theirs.exists()
            assert mine.exists()
        living.communicate("done\n")
    assert not theirs.exists()
    assert not mine.exists()


@only_sqlite
def test_what_a_restore_replaced_is_kept_as_a_file_of_its_own_with_what_was_in_its_journal(
    full: Store, url: str, tmp_path: Path, clock: VirtualClock
) -> None:
    path, file = tmp_path / "backup.db", Path(url.removeprefix("sqlite:///"))
    back_up(url, path)
    with full.write() as tx:
        tx.set_task_done("collect", 99)
    files = {each: each.read_bytes() for each in (file, file.with_name("tradewind.db-wal"))}
    full.close()
    for each, content_then in files.items():  # as a process that was killed leaves them
        each.write_bytes(content_then)
    kept = Path(str(restore(url, path, NOW_MS).kept))
    assert opened(f"sqlite:///{kept}", clock)[-1] == 99
    assert (kept.stat().st_nlink, kept.stat().st_mode & 0o777) == (1, 0o600)
