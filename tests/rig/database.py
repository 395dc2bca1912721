"""ScratchDatabase: a database that is wiped before each history, so that compiled statements are reused.

Histories simulate crashes by exceptions, not by power failures, so commits need not wait for the disk.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import event, text

from orchestrator.store import Store
from orchestrator.store.backends.backend import Backend, backend_of
from orchestrator.store.schema_base import metadata
from providers.clock import VirtualClock


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A temporary folder, on an in-memory file system if there is one."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tw-sim-", dir=place) as name:
        yield Path(name)


class ScratchDatabase(Protocol):
    """A reusable database. After each `wipe`, `backend` is open on an empty store; `url` is its address."""

    url: str
    backend: Backend

    def wipe(self) -> None:
        """Resets it to a new store."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class SqliteScratchDatabase:
    """An SQLite file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/tradewind.db"
        self._file, self._empty = folder / "tradewind.db", folder / "empty.db"
        _make(f"sqlite:///{self._empty}")
        shutil.copy(self._empty, self._file)
        self.backend = backend_of(self.url, create=False)
        for engine in (self.backend.reading, self.backend.writing):
            event.listen(engine, "connect", _do_not_wait_for_the_disk)

    def wipe(self) -> None:
        with closing(sqlite3.connect(self._empty)) as empty, closing(sqlite3.connect(self._file)) as file:
            empty.backup(file)

    def close(self) -> None:
        self.backend.close()


class PostgresScratchDatabase:
    """The Postgres database at `url`, which must be empty and owned by a superuser: append-only tables are emptied,
    too."""

    def __init__(self, url: str) -> None:
        self.url = url
        _make(url)
        self.backend = backend_of(url, create=False)
        tables = ", ".join(f'"{table.name}"' for table in metadata.sorted_tables)
        self._truncate = text(f"TRUNCATE {tables} RESTART IDENTITY")
        with self.backend.writing.connect() as connection:
            first = ((table, connection.execute(table.select()).mappings().all()) for table in metadata.sorted_tables)
            self._first: list[tuple[Any, list[dict[str, Any]]]] = [
                (table, [dict(row) for row in rows]) for table, rows in first if rows
            ]

    def wipe(self) -> None:
        with self.backend.writing.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(self._truncate)
            for table, rows in self._first:
                connection.execute(table.insert(), rows)

    def close(self) -> None:
        self.backend.close()


def _make(url: str) -> None:
    """Creates a store, always with the same install id."""
    Store.open(url, VirtualClock(), random=random.Random(0)).close()


def _do_not_wait_for_the_disk(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")
