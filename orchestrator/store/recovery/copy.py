"""Copies a whole store between databases of either kind, row by row at the same schema revision."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, Table, column, delete, func, insert, select, table, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from orchestrator.store.backends.faults import explain
from orchestrator.store.backends.files import atomic_file
from orchestrator.store.backends.postgres import unhurried
from orchestrator.store.backends.sqlite import SqliteBackend
from orchestrator.store.revise import SHIPPED, VERSION_TABLE, Revisions, apply, current_revision
from orchestrator.store.transaction import stream

_ROWS = 2000


def copy_into(source: Connection, target: Connection, place: str) -> None:
    """Copies the store `source` into the empty database `target`, which messages call `place`.

    Raises StoreVersionError for a revision that this version does not know.
    """
    for connection in (source, target):
        unhurried(connection)
    apply(target, None, Revisions(SHIPPED.folder, current_revision(source)), place)
    made = _tables(target)
    for each in _tables(source).values():
        twin = made[each.name]
        if target.execute(select(twin).limit(1)).first() is not None:
            target.execute(delete(twin))  # rows that the revision scripts inserted
        rows = source.execute(select(each), execution_options={"yield_per": _ROWS})
        if target.dialect.name == "postgresql":
            stream(target, twin.name, rows.keys(), rows)  # ten times as fast as single inserts
            _advance_sequences(target, twin)
        else:
            for batch in rows.mappings().partitions():
                target.execute(insert(twin), [dict(row) for row in batch])
    if target.dialect.name == "postgresql":
        target.execute(text("ANALYZE"))


def copy_to_file(source: Engine, path: Path, place: str) -> None:
    """Writes the store `source`, named `place`, to `path`, which must not exist, as SQLite. Raises StoreError."""
    with atomic_file(path) as unfinished:
        file = SqliteBackend(URL.create("sqlite", database=str(unfinished)), create=True)
        try:
            with source.begin() as reading, file.writing.begin() as writing:
                copy_into(reading, writing, place)
        except DBAPIError as error:
            raise explain(error, f"backup {path}" if isinstance(error.orig, sqlite3.Error) else place) from error
        finally:
            file.close()


def _tables(connection: Connection) -> dict[str, Table]:
    """The tables, each after those that it refers to."""
    found = MetaData()
    found.reflect(connection)
    return {each.name: each for each in found.sorted_tables if each.name != VERSION_TABLE}


def _advance_sequences(target: Connection, twin: Table) -> None:
    """Sets the Postgres sequences to continue after the copied keys."""
    for key in twin.primary_key:
        counter = target.execute(select(func.pg_get_serial_sequence(f'"{twin.name}"', key.name))).scalar_one()
        if counter is not None:
            target.execute(select(func.setval(counter, func.max(column(key.name)))).select_from(table(twin.name)))
