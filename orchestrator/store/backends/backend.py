"""Backend: the interface to the database behind a store; only this package distinguishes SQLite from Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from orchestrator.errors import StoreError
from orchestrator.store.backends.faults import damaged, explain, invalidates_connections
from orchestrator.store.backends.postgres import PostgresBackend
from orchestrator.store.backends.sqlite import SqliteBackend


class Backend(Protocol):
    """A database. `place` is its name in messages; `file` is its file, as device:inode:path, None for a server.
    Transactions of `reading` see one snapshot and cannot write; transactions of `writing` run one at a time."""

    place: str
    file: str | None
    reading: Engine
    writing: Engine

    def enable_sharing(self) -> None:
        """Prepares for use by several processes; call it only on a database that is a store. Raises StoreError."""
        ...

    def check(self) -> None:
        """Raises StoreError if the database is no longer the one that was opened."""
        ...

    def discard(self) -> None:
        """Closes idle connections; the next transactions open new ones."""
        ...

    def backup(self, path: Path) -> None:
        """Writes a consistent copy, an SQLite store, to the file `path`, which must not exist. Raises StoreError."""
        ...

    def backup_before(self, revision: str) -> None:
        """Takes a backup of the state at `revision` before an upgrade. Raises StoreError."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


def backend_of(url: str, *, create: bool, backups: Path | None = None) -> Backend:
    """The backend for a store's URL; `backups` is the folder for backups of a database that is not a file.

    Raises StoreError, MissingExtraError.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is not a store URL", hint="for example sqlite:////path/tradewind.db") from error
    match parsed.get_backend_name():
        case "sqlite":
            return SqliteBackend(parsed, create=create)
        case "postgresql":
            return PostgresBackend(parsed, backups=backups)
        case other:
            raise StoreError(f"{other} is not a supported database", hint="use sqlite:////path or postgresql://...")


@contextmanager
def transaction(backend: Backend, *, writes: bool) -> Iterator[Connection]:
    """One transaction: committed at the end of the block, rolled back when the block raises.

    Raises StoreError for every database error and StoreDamagedError if tables or columns of a store are missing; other
    errors of the block pass unchanged. After an error the backend remains usable once the database is.
    """
    committing = False
    engine = backend.writing if writes else backend.reading
    pool = engine.pool
    try:
        with engine.connect() as connection:
            try:
                with connection.begin() as begun:
                    yield connection
                    committing = writes
                    begun.commit()
            finally:
                if engine.pool is not pool:  # discarded or closed meanwhile: nothing else would close this connection
                    connection.invalidate()
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
        if invalidates_connections(error, reading=not writes):
            backend.discard()
        raise explain(error, backend.place, committing=committing, reading=not writes) from error
    except SQLAlchemyError as error:  # a table or column of every store is missing or has another form
        raise damaged(error, backend.place) from error
    if writes:
        backend.check()  # what was written to a deleted file is lost
