"""Backups: taken while the store is in use; restored while nothing uses it.

A restore checks the backup first, replaces the store atomically and keeps what it replaced. A backup is an SQLite
store, whatever database it comes from or goes to.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from sqlalchemy import Connection, inspect, text, update
from sqlalchemy.engine import URL, make_url

from orchestrator.config.paths import why_not_created
from orchestrator.errors import StoreDamagedError, StoreError, StoreVersionError, shortened
from orchestrator.store.backends.backend import Backend, backend_of, transaction
from orchestrator.store.backends.faults import explain, of_disk
from orchestrator.store.backends.files import JOURNALS, beside, identity, sync, temporary_file, unused
from orchestrator.store.backends.sqlite import SqliteBackend
from orchestrator.store.leadership import leader
from orchestrator.store.leadership.leader import LeaderRow
from orchestrator.store.queries.claims import allow_adoption
from orchestrator.store.recovery.copy import copy_into
from orchestrator.store.recovery.examine import Examination
from orchestrator.store.revise import ForeignDatabaseError, revision_of
from orchestrator.store.schema import leader as leader_table
from orchestrator.store.upgrade import install_id_of
from providers.procfs import holders

_KEPT_SCHEMA = "tradewind_replaced"


@dataclass(frozen=True, slots=True)
class Backup:
    """The installation that a backup belongs to, and its schema revision."""

    install_id: str
    revision: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored backup. `kept` is the file or schema to which the replaced store was moved, None if there was none."""

    backup: Backup
    kept: str | None


@dataclass(frozen=True, slots=True)
class _Present:
    """The store to be replaced; without id and leader if it is `damaged` or missing."""

    damaged: bool = False
    install_id: str | None = None
    leader: LeaderRow | None = None


def back_up(url: str, path: Path) -> Backup:
    """Writes a consistent, checked copy of the store at `url` to the file `path`, which must not exist.

    The store stays in use meanwhile; an older store is not upgraded. Raises StoreError.
    """
    with closing(backend_of(url, create=False)) as backend:
        with transaction(backend, writes=False) as connection:
            if revision_of(connection, backend.place) is None:
                raise StoreError(
                    f"there is no store in {backend.place}",
                    hint="check state_dir; the first `tradewind submit` creates the store",
                )
        backend.backup(path)
    try:
        return _validated(path, path)
    except BaseException:
        path.unlink()
        raise


def restore(url: str, backup: Path, now_ms: int) -> Restored:
    """Replaces the store at `url`, which may be missing or damaged, with the one in the file `backup`.

    Raises StoreError, with nothing changed, if a control plane leads the store, if `backup` is not a valid store of
    this installation, or (SQLite) if another process has the store open; StoreVersionError if `backup` is of a newer
    version.
    """
    with _staged(url, backup) as (staged, found):
        if make_url(url).get_backend_name() == "sqlite":
            kept = _replace_file(url, staged, found, now_ms)
        else:
            kept = _replace_tables(url, staged, found, now_ms)
    return Restored(found, kept)


@contextmanager
def _staged(url: str, backup: Path) -> Iterator[tuple[SqliteBackend, Backup]]:
    """A checked copy of the backup as a file: beside the store if that is a file, otherwise beside the backup."""
    if not backup.is_file():
        raise StoreError(f"there is no backup {backup}", hint="give the file that `tradewind store backup` wrote")
    if not os.access(backup, os.R_OK):
        raise StoreError(f"the backup {backup} cannot be read by this user", hint=f"chown or chmod u+r {backup}")
    database = make_url(url).database if make_url(url).get_backend_name() == "sqlite" else None
    target = Path(database).absolute() if database else backup.absolute()
    if database and identity(target) == identity(backup):
        raise StoreError(f"{backup} is the store itself", hint="give a backup of it")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary_file(target) as file:
            with _as_errors_of(backup, file):
                _copy_file(backup, file)
                found = _validated(file, backup)
            with closing(_open_file(file)) as staged:
                yield staged, found
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise StoreError(f"{error.filename} is a folder", hint="move it away, then try again") from error
        raise StoreError(
            f"{target} cannot be written: {why_not_created(target, error)}",
            hint="check the folder's permissions and free disk space",
        ) from error


@contextmanager
def _as_errors_of(backup: Path, copy: Path) -> Iterator[None]:
    """Report a problem with `copy` as an error of the backup, because the store is not the cause. Raises StoreError."""
    try:
        yield
    except StoreVersionError:
        raise
    except StoreError as error:
        if isinstance(error.__cause__, Exception) and of_disk(error.__cause__):
            raise
        reason = str(error).replace(str(copy), str(backup)).removeprefix("the ").removeprefix("store ")
        reason = reason.removeprefix("backup ").removeprefix(str(backup)).strip()
        raise StoreError(f"the backup {backup} {reason}", hint="use another backup; the store is unchanged") from error


def _copy_file(backup: Path, file: Path) -> None:
    try:
        uri = f"file:{quote(str(backup.absolute()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as source:
            source.execute("VACUUM INTO ?", (str(file),))
    except sqlite3.Error as error:
        raise explain(error, f"backup {backup}") from error


def _open_file(path: Path) -> SqliteBackend:
    return SqliteBackend(URL.create("sqlite", database=str(path)), create=False)


def _validated(path: Path, backup: Path) -> Backup:
    """Checks the file `path`, a copy of `backup`. Raises StoreError if it is not a valid store."""
    with closing(_open_file(path)) as opened, transaction(opened, writes=False) as connection:
        found = Examination(connection, str(backup), revision_of(connection, str(backup)))
        if found.revision is None:
            raise StoreError(f"{backup} is empty", hint="give the file that `tradewind store backup` wrote")
        if found.age == "newer":
            raise StoreVersionError(
                f"the backup {backup} was written by a newer version (revision {found.revision})",
                hint="upgrade Tradewind: pip install --upgrade tradewind",
            )
        wrong = [*found.damage(), *found.dangling(), *found.lost_protection()]
        if wrong:
            raise StoreError(f"the backup {backup} is damaged: {'; '.join(wrong)}", hint="use an older backup")
        return Backup(install_id_of(connection), found.revision)


def _replace_file(url: str, staged: SqliteBackend, found: Backup, now_ms: int) -> str | None:
    path = Path(str(make_url(url).database)).absolute()
    present = _Present()
    if path.exists():
        with closing(backend_of(url, create=False)) as backend:
            present = _look(backend, found)
    with transaction(staged, writes=True) as connection:
        _forget_leader(connection, present, now_ms)
        if path.exists():  # the replaced store may have changed machines since the backup
            allow_adoption(connection, now_ms)
    staged.close()
    sync(staged.path)
    kept = unused(beside(path, ".replaced")) if path.exists() else None
    with _exclusive(path), path.open("rb") if kept else nullcontext() as replaced:
        if kept is not None and replaced is not None:
            _keep(replaced, kept)
        for ending in JOURNALS:  # journals of a deleted or unreadable file
            beside(path, ending).unlink(missing_ok=True)
        os.replace(staged.path, path)
    sync(path.parent)
    return None if kept is None else str(kept)


def _keep(replaced: BinaryIO, kept: Path) -> None:
    """Copies an unused store to `kept`. It is a copy and not a hard link, which would be a second name of the live
    store if this process were killed now. `replaced` must stay open until the store is replaced: closing it would
    release this process's locks on the file."""
    with temporary_file(kept) as copy:
        with copy.open("wb") as target:
            shutil.copyfileobj(replaced, target, 1 << 20)
        sync(copy)
        os.replace(copy, kept)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Locks the file for the block. Raises StoreError if another process has it open.

    A missing or damaged file cannot be in use.
    """
    if not path.exists():
        yield
        return
    uri = f"file:{quote(str(path))}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")  # fails while another connection is open
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreError(
                    f"another process uses the store {path}",
                    hint=f"stop {_users(path)}, then restore again",
                ) from error
        yield


def _users(path: Path) -> str:
    """The processes that have the file open, as far as they are visible."""
    found = [f"process {pid} ({shortened(command)})" for pid, command in holders(path).items()]
    return ", ".join(found) or "everything that uses it (tradewind down --keep-jobs)"


def _replace_tables(url: str, staged: SqliteBackend, found: Backup, now_ms: int) -> str | None:
    with closing(backend_of(url, create=False)) as backend:
        seen = _look(backend, found)
        with staged.reading.begin() as source, transaction(backend, writes=True) as target:
            present = seen if seen.damaged else _read(target, backend.place)
            if present != seen:
                raise StoreError(
                    f"a control plane has started to use {backend.place}",
                    hint="end it first: tradewind down --keep-jobs",
                )
            kept = _set_aside(target)
            copy_into(source, target, backend.place)
            _forget_leader(target, present, now_ms)
            if kept is not None:
                allow_adoption(target, now_ms)
        return kept


def _set_aside(connection: Connection) -> str | None:
    """Moves all tables of the store and their functions into a new schema and returns its name; None if there are
    none."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    taken = inspect(connection).get_schema_names()
    schema, number = _KEPT_SCHEMA, 1
    while schema in taken:
        number += 1
        schema = f"{_KEPT_SCHEMA}_{number}"
    connection.execute(text(f"CREATE SCHEMA {schema}"))
    for name in tables:
        connection.execute(text(f'ALTER TABLE "{name}" SET SCHEMA {schema}'))
    functions = text("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
    for name in connection.execute(functions).scalars().all():
        if "_refuses(" in name:
            connection.execute(text(f"ALTER FUNCTION {name} SET SCHEMA {schema}"))
    return f"schema {schema}"


def _look(backend: Backend, found: Backup) -> _Present:
    """The store to be replaced. Raises StoreError if it is of another installation or has a leader."""
    present = _readable(backend)
    if present.install_id not in (None, found.install_id):
        raise StoreError(
            f"the backup is of another installation ({found.install_id}) than the store {backend.place} "
            f"({present.install_id})",
            hint="to restore it here anyway, move the current store away first",
        )
    row = present.leader
    info = leader.info_of(row) if row is not None else None
    if info is None or info.alive is False:
        return present
    if info.alive is None and not leader.shows_life(lambda: _readable(backend)):
        return present
    raise StoreError(
        f"the control plane {info.holder} (process {info.pid} on {info.host}) is using {backend.place}",
        hint="end it first: tradewind down --keep-jobs",
    )


def _readable(backend: Backend) -> _Present:
    try:
        with transaction(backend, writes=False) as connection:
            return _read(connection, backend.place)
    except ForeignDatabaseError:
        raise
    except StoreError as error:
        if not isinstance(backend, SqliteBackend) and not isinstance(error, StoreDamagedError):
            raise
        return _Present(damaged=True)  # damaged stores are what backups are for


def _read(connection: Connection, place: str) -> _Present:
    revision = revision_of(connection, place)
    if revision is None:
        return _Present()
    if connection.dialect.name == "sqlite" and Examination(connection, place, revision).damage():
        return _Present(damaged=True)  # its rows cannot be trusted; `_exclusive` finds out whether it is in use
    return _Present(install_id=install_id_of(connection), leader=leader.current(connection))


def _forget_leader(connection: Connection, present: _Present, now_ms: int) -> None:
    """Leaves the restored store without a leader, at an epoch that no leader has had, not even since the backup.

    `now_ms` is high enough because elections happen less than once a millisecond; so every earlier leadership is void.
    """
    before = present.leader.epoch if present.leader is not None else 0
    backed_up = leader.current(connection).epoch
    connection.execute(update(leader_table).values(epoch=max(before, backed_up, now_ms) + 1, holder=None))
