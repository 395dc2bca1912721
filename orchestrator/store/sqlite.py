"""SQLite as a backend: one file in WAL mode. Must not know tables.

A write transaction begins with BEGIN IMMEDIATE, so that it waits for its turn before it reads, and never in its middle.
A file that vanishes under an open connection goes on working unseen until the process ends: `check` looks for that.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from orchestrator.errors import StoreError
from orchestrator.store.faults import explain

BUSY_TIMEOUT_S = 10.0
"""How long a writer waits for its turn, unless the address says otherwise (`?timeout=2`)."""


class SqliteBackend:
    """Engines for reading and for writing one file.

    Raises StoreError when the file is missing (without `create`), no file, or not writable for this user.
    """

    def __init__(self, url: URL, *, create: bool) -> None:
        if not url.database or url.database == ":memory:":
            raise StoreError("a store in memory cannot be shared", hint="name a file: sqlite:////path/tradewind.db")
        self._path = Path(url.database).absolute()
        self.place = str(self._path)
        self._timeout_s = _seconds(url)
        _require_file(self._path, create=create)
        self._identity = _identity(self._path)
        engine = create_engine(
            "sqlite+pysqlite://", creator=self._connect, poolclass=QueuePool, max_overflow=-1, pool_timeout=None
        )
        event.listen(engine, "begin", _begin)
        self.reading: Engine = engine
        self.writing: Engine = engine.execution_options(writes=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self.place)}?mode=rw",  # rw: never make an empty file where the store has been deleted
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,  # transactions begin in _begin and nowhere else
            check_same_thread=False,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def settle(self) -> None:
        """Turn on WAL (kept in the file). Called once the file is known to be ours. Raises StoreError."""
        try:
            with closing(self._connect()) as connection:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.Error as error:
            raise explain(error, self.place) from error
        if mode != "wal":
            raise StoreError(
                f"the store {self.place} lies on a file system without shared memory",
                hint="put state_dir on a local disk",
            )

    def check(self) -> None:
        """Raises StoreError when the file was deleted or replaced since it was opened."""
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"the store {self.place} was deleted or replaced while it was in use",
                hint="put the file or a backup back, then restart what uses it; the last change may be lost",
            )

    def backup(self, path: Path) -> None:
        """Write a consistent copy to `path`, which must not exist. Raises StoreError."""
        if path.exists():
            raise StoreError(f"{path} exists", hint="name a new file for the backup")
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with closing(self._connect()) as connection:
                connection.execute("VACUUM INTO ?", (str(unfinished),))
            os.replace(unfinished, path)
        except sqlite3.Error as error:
            raise explain(error, f"backup {path}") from error
        except OSError as error:
            raise StoreError(f"the backup {path} cannot be written: {error.strerror}") from error
        finally:
            unfinished.unlink(missing_ok=True)

    def backup_before(self, revision: str) -> None:
        """Keep a copy beside the file as it was at `revision`; one that is there already is as good."""
        path = self._path.with_name(f"{self._path.name}.before-upgrade-from-{revision}")
        if not path.exists():
            self.backup(path)

    def close(self) -> None:
        self.reading.dispose()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _seconds(url: URL) -> float:
    try:
        return float(str(url.query.get("timeout", BUSY_TIMEOUT_S)))
    except ValueError as error:
        raise StoreError(f"the timeout in {url} is no number of seconds", hint="for example ?timeout=10") from error


def _require_file(path: Path, *, create: bool) -> None:
    try:
        if create and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # never open and close a file in use: that would drop its locks
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # job files hold what others must not read
        if not path.exists():
            raise StoreError(f"there is no store at {path}", hint="check state_dir; the first submit makes one")
        if not path.is_file():
            raise StoreError(f"the store {path} is not a file", hint="name a file in the store's address")
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


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
