"""Backend: the database behind a store, and the only place that tells SQLite from Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from orchestrator.errors import StoreError
from orchestrator.store.backends.faults import damaged, explain, spoils
from orchestrator.store.backends.postgres import PostgresBackend
from orchestrator.store.backends.sqlite import SqliteBackend


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
        """Raises StoreError when the database is no longer the one that was opened."""
        ...

    def discard(self) -> None:
        """Close the connections that are not in use: the next transactions open new ones."""
        ...

    def backup(self, path: Path) -> None:
        """Write a consistent copy to the file `path`, an SQLite store. Raises StoreError."""
        ...

    def backup_before(self, revision: str) -> None:
        """Keep a copy of the present state, which is at `revision`, before it is upgraded. Raises StoreError."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def backend_of(url: str, *, create: bool, backups: Path | None = None) -> Backend:
    """The backend that a store's address names; `backups` is the folder for those of a database that is no file.

    Raises StoreError, MissingExtraError.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is not a store's address", hint="sqlite:////path/tradewind.db") from error
    match parsed.get_backend_name():
        case "sqlite":
            return SqliteBackend(parsed, create=create)
        case "postgresql":
            return PostgresBackend(parsed, backups=backups)
        case other:
            raise StoreError(f"a store cannot live in {other}", hint="use sqlite:////path or postgresql://...")


@contextmanager
def transaction(backend: Backend, *, writes: bool) -> Iterator[Connection]:
    """One transaction: committed at the end, undone when the block raises.

    Raises StoreError for whatever the database raises, StoreDamagedError where it lacks what every store has; errors of
    the block itself pass unchanged. After one, the backend is as good as new: what was wrong with the database is all
    that can stand in the way of the next.
    """
    committing = False
    engine = backend.writing if writes else backend.reading
    try:
        with engine.connect() as connection, connection.begin() as begun:
            yield connection
            committing = writes
            begun.commit()
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
        if spoils(error):
            backend.discard()
        raise explain(error, backend.place, committing=committing) from error
    except SQLAlchemyError as error:  # what every store has is not there, or not in this shape
        raise damaged(error, backend.place) from error
    if writes:
        backend.check()  # a file that is gone takes what was written to it with it
