"""The SQLite backend: one file in WAL mode.

A write transaction begins with BEGIN IMMEDIATE, so it waits for the lock before it reads, never in the middle. SQLite
does not notice when a file is deleted or replaced under an open connection: `check` does.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Dialect, Engine, create_engine
from sqlalchemy.engine import URL
from sqlalchemy.pool import PoolProxiedConnection, QueuePool
from sqlalchemy.util import LRUCache

from orchestrator.config.paths import broken_link
from orchestrator.errors import StoreError
from orchestrator.store.backends.faults import explain
from orchestrator.store.backends.files import atomic_file, beside, identity, unused

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for the lock; `?timeout=2` in the URL overrides it."""

TURN_POLL_S = 0.02
"""Seconds between the first attempts of a writer to get the lock; the longer it waits, the more often it tries."""

CACHE_KIB = 65_536
"""Page cache per connection, allocated as needed. A poll of thousands of prices touches as many pages; with SQLite's
default of 2 MB it would write them out and read them again within the transaction."""

COMPILED: LRUCache[Any, Any] = LRUCache(1_000)
"""SQLAlchemy's compiled statements. A process uses some 200 of them."""


class SqliteBackend:
    """Engines for reading and for writing one file.

    Raises StoreError if the path is missing (without `create`), not a file, or not writable for this user.
    """

    def __init__(self, url: URL, *, create: bool) -> None:
        if not url.database or url.database == ":memory:":
            raise StoreError("a store in memory cannot be shared", hint="use a file: sqlite:////path/tradewind.db")
        self.path = Path(url.database).absolute()
        self.place = str(self.path)
        self._timeout_s = seconds(url, BUSY_TIMEOUT_S)
        _require_file(self.path, create=create)
        self._identity = identity(self.path)
        self.file: str | None = ":".join(map(str, (*(self._identity or ()), self.path)))
        self.reading: Engine = _engine(self._connect_to_read, _begin)
        self.writing: Engine = _engine(self.connect, _begin_to_write)

    def connect(self) -> sqlite3.Connection:
        """A new connection outside the pool, in autocommit mode. Raises sqlite3.Error."""
        connection = sqlite3.connect(
            f"file:{quote(self.place)}?mode=rw",  # rw: never create an empty file instead of a deleted store
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,  # transactions begin only in _begin
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """A connection that refuses to write. It belongs to a separate pool: switching one connection between reading
        and writing makes SQLite prepare all its statements again, and most of them run faster than that."""
        connection = self.connect()
        try:
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def enable_sharing(self) -> None:
        """Turns on WAL mode, which the file keeps. Raises StoreError."""
        try:
            with closing(self.connect()) as connection:
                (mode,) = _in_turn(connection, "PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.Error as error:
            raise explain(error, self.place) from error
        if mode != "wal":
            raise StoreError(
                f"the store {self.place} is on a file system without shared memory, which WAL mode needs",
                hint="put state_dir on a local disk",
            )

    def check(self) -> None:
        """Raises StoreError if the file was deleted or replaced."""
        found = identity(self.path)
        if found != self._identity:
            raise StoreError(
                f"the store {self.place} was {'deleted' if found is None else 'replaced'} while it was in use; "
                "the latest change may be lost",
                hint="put the file back; or end every process that uses it (tradewind down) and restore a backup: "
                "tradewind store restore BACKUP",
            )

    def discard(self) -> None:
        """Closes idle connections."""
        self.reading.dispose()
        self.writing.dispose()

    def backup(self, path: Path) -> None:
        """Writes a consistent copy to `path`, which must not exist. Raises StoreError."""
        try:
            with atomic_file(path) as unfinished, closing(self.connect()) as connection:
                connection.execute("VACUUM INTO ?", (str(unfinished),))
        except sqlite3.Error as error:
            raise explain(error, f"backup {path}") from error

    def backup_before(self, revision: str) -> None:
        """Takes a backup at `revision` beside the file, under an unused name. Raises StoreError."""
        self.backup(unused(beside(self.path, f".before-upgrade-from-{revision}")))

    def close(self) -> None:
        """Closes all connections."""
        self.discard()


def _engine(creator: Callable[[], sqlite3.Connection], begin: Callable[[PoolProxiedConnection], None]) -> Engine:
    """An engine whose transactions begin with `begin`. It shares SQLAlchemy's compiled statements with other stores of
    this process, because compiling a statement (a millisecond) takes longer than running it."""
    engine = create_engine("sqlite+pysqlite://", creator=creator, poolclass=QueuePool, max_overflow=-1)
    engine.dialect = _dialect(begin)  # compiled statements belong to a dialect
    engine.update_execution_options(compiled_cache=COMPILED)
    return engine


@cache
def _dialect(begin: Callable[[PoolProxiedConnection], None]) -> Dialect:
    """SQLite with `begin`. The hook is set here: with an event listener, SQLAlchemy would look for listeners at every
    statement, which takes a sixth of a transaction's time."""
    in_memory = create_engine("sqlite+pysqlite://")
    with in_memory.connect():  # the first connection tells the dialect what this SQLite supports
        in_memory.dialect.do_begin = begin  # type: ignore[assignment]
    in_memory.dispose()
    return in_memory.dialect


def _begin(connection: PoolProxiedConnection) -> None:
    """Begins a transaction without SQLAlchemy, which takes ten times as long for such statements."""
    _raw(connection).execute("BEGIN")


def _begin_to_write(connection: PoolProxiedConnection) -> None:
    """Likewise; it waits for the lock."""
    _in_turn(_raw(connection), "BEGIN IMMEDIATE")


def _raw(connection: PoolProxiedConnection) -> sqlite3.Connection:
    raw = connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _in_turn(raw: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Runs a statement that needs the write lock, retried at decreasing intervals. Raises sqlite3.Error.

    SQLite's own busy handler retries at increasing intervals, so with many writers, those that have waited longest come
    last or never. It also does not wait at all for the change to WAL mode.
    """
    (patience_ms,) = raw.execute("PRAGMA busy_timeout").fetchone()
    raw.execute("PRAGMA busy_timeout = 0")
    began_s = time.monotonic()
    try:
        while True:
            try:
                return raw.execute(statement)
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - began_s
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited_s * 1000 >= patience_ms:
                    raise
                time.sleep(TURN_POLL_S * random.uniform(0.5, 1.5) / (1 + waited_s))
    finally:
        raw.execute(f"PRAGMA busy_timeout = {patience_ms}")


def seconds(url: URL, default: float) -> float:
    """The lock timeout in seconds that `url` requests, otherwise `default`. Raises StoreError."""
    try:
        return float(str(url.query.get("timeout", default)))
    except ValueError as error:
        raise StoreError(f"the timeout in {url} is not a number of seconds", hint="for example ?timeout=10") from error


def _require_file(path: Path, *, create: bool) -> None:
    try:
        if not path.exists() and (link := broken_link(path)):
            hint = f"create {os.readlink(link)}, or remove the link"
            raise StoreError(f"there is no store at {path}: {link} is a broken link to {os.readlink(link)}", hint=hint)
        if create and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # never open and close a file in use: that would release its locks
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # job files may contain private data
        if not path.exists():
            raise StoreError(
                f"there is no store at {path}", hint="check state_dir; the first `tradewind submit` creates the store"
            )
        if not path.is_file():
            raise StoreError(
                f"the store {path} is not a file",
                hint="move it away, then: tradewind store restore BACKUP; or use a file in the store's URL",
            )
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened: {error.strerror}",
            hint="check that this user may write to its folder and that the disk is not full",
        ) from error
    if not os.access(path, os.R_OK):
        raise StoreError(f"the store {path} cannot be read by this user", hint=f"chown or chmod u+rw {path}")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreError(
            f"the store {path} is read-only", hint="give this user write permission on it and on its folder"
        )
