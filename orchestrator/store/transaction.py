"""Base class of the table families: a connection inside a transaction, the clock and the source of ids.

SQLAlchemy takes five times as long to build a statement as to execute it. So every statement that runs often is built
once, as a constant or by a cached function of its shape, with bound parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Connection, Insert, Table, bindparam, insert

from orchestrator.formats.codec import encode
from orchestrator.model import new_id
from orchestrator.model.ids import RandomBits
from providers.clock import Clock

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Transaction:
    """Base of the table families; usable only inside the `with` block of Store.read or Store.write."""

    def __init__(self, connection: Connection, clock: Clock, random: RandomBits) -> None:
        self._connection = connection
        self._clock = clock
        self._random = random

    def _new_id(self, prefix: str) -> str:
        return new_id(prefix, self._clock.now_ms(), self._random)

    def _insert(self, table: Table, **values: object) -> None:
        self._connection.execute(insert_into(table), values)

    def _insert_many(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts thousands of rows that have the same columns in the same order, as plain values. It bypasses
        SQLAlchemy, which would take most of the time; on Postgres it uses COPY, ten times as fast as single inserts."""
        names, values = list(rows[0]), [tuple(row.values()) for row in rows]
        if self._connection.dialect.name == "postgresql":
            stream(self._connection, table.name, names, values)
        else:
            places = ", ".join("?" for _ in names)
            self._connection.exec_driver_sql(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({places})", values)


def stream(connection: Connection, table: str, names: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes rows of these columns to a Postgres table by COPY."""
    raw: Any = connection.connection.driver_connection
    quoted = ", ".join(f'"{name}"' for name in names)
    with raw.cursor() as cursor, cursor.copy(f'COPY "{table}" ({quoted}) FROM STDIN') as copy:
        for row in rows:
            copy.write_row(row)


def among(column: Column[Any], values: Collection[str]) -> ColumnElement[bool]:
    """A condition: the column has one of `values`, which never change. SQLAlchemy expands the list of a plain `in_` at
    every execution, which takes as long as a small query."""
    return column.in_([bindparam(None, each, type_=column.type) for each in sorted(values)])


@cache
def insert_into(table: Table) -> Insert:
    """An INSERT statement for `table`, cached."""
    return insert(table)


def columns(value: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass as values for the columns of the same names. Raises CodecError."""
    values: dict[str, Any] = encode(value)
    return values
