"""Backend: the database behind a store. Must not know tables; the only place that tells SQLite from Postgres."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from orchestrator.errors import StoreError
from orchestrator.store.faults import explain
from orchestrator.store.postgres import PostgresBackend
from orchestrator.store.sqlite import SqliteBackend


class Backend(Protocol):
    """`place` names it for people. A transaction of `reading` sees one snapshot and cannot write; transactions of
    `writing` take turns."""

    place: str
    reading: Engine
    writing: Engine

    def settle(self) -> None:
        """Prepare for many processes, once it is known to hold a store of ours."""
        ...

    def check(self) -> None:
        """Raises StoreError when it is no longer what was opened."""
        ...

    def backup(self, path: Path) -> None:
        """Write a consistent copy to `path`. Raises StoreError."""
        ...

    def backup_before(self, revision: str) -> None:
        """Keep a copy of the present state, which is at `revision`, before it is upgraded."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def backend_of(url: str, *, create: bool) -> Backend:
    """The backend that a store's address names. Raises StoreError, MissingExtraError."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is not a store's address", hint="sqlite:////path/tradewind.db") from error
    match parsed.get_backend_name():
        case "sqlite":
            return SqliteBackend(parsed, create=create)
        case "postgresql":
            return PostgresBackend(parsed)
        case other:
            raise StoreError(f"a store cannot live in {other}", hint="use sqlite:////path or postgresql://...")


@contextmanager
def transaction(backend: Backend, *, writes: bool) -> Iterator[Connection]:
    """One transaction: committed at the end, undone when the block raises.

    Raises StoreError for whatever the database raises; errors of the block itself pass unchanged.
    """
    backend.check()
    try:
        with (backend.writing if writes else backend.reading).begin() as connection:
            yield connection
    except (DBAPIError, sqlite3.Error) as error:
        raise explain(error, backend.place) from error
    if writes:
        backend.check()
