"""Database rows as typed dataclasses: a row with values of wrong types or out of range is reported as damaged.

SQLite itself detects neither a zeroed byte inside a page nor a value of the wrong type in a column. The range of a
number follows from the unit at the end of its name.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import chain
from typing import Any, Protocol, TypeVar

from sqlalchemy import Column, Row

from orchestrator.errors import RowError, UnreadableRowError
from orchestrator.formats.codec import Codec, CodecError, decode, loads

T = TypeVar("T")
R = TypeVar("R", bound=Sequence[Any])
Unreadable = Callable[[str, RowError], object]
"""Called with a job's id and the error for each of its rows that is skipped because it cannot be read. Without such a
callback, the first error is raised."""

ROWS_KEPT = 4096
"""Decoded rows of one table, by all their values. The control plane reads the same rows many times a second, and few of
them change in between."""

EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999
"""From the year 1 to the year 9999: the instants that have a date."""
_LARGEST = 2**63 - 1
_RANGES: dict[str, tuple[float, float]] = {  # by the end of a name
    "_ms": (EARLIEST_MS, LATEST_MS),
    "_s": (0.0, sys.float_info.max),
    "_bytes": (0, _LARGEST),
    "_count": (0, _LARGEST),
    "_per_hour": (0, _LARGEST),
    "_step": (0, _LARGEST),
    "_steps": (0, _LARGEST),
    "vcpu": (0, _LARGEST),
}


class _Row(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...

    def __iter__(self) -> Iterator[Any]: ...


def record(type_: type[T], table: str, row: _Row, *, of: object = None, **changed: Any) -> T:
    """The row as a dataclass; `changed` overrides stored values. Errors name the row by its id, otherwise by `of`.
    Raises UnreadableRowError."""
    return decoded(type_, table, by_name(row) | changed, of)


def by_name(row: _Row) -> dict[str, Any]:
    """A row's values by column name, as plain strings rather than SQLAlchemy's own text class."""
    return {str(name): value for name, value in zip(row._fields, row, strict=True)}


def quickly(
    rows: Sequence[Row[Any]],
    shapes: Collection[tuple[type, ...]],
    make: Callable[..., T],
    read: Callable[[Row[Any]], T],
) -> list[T]:
    """The result of `read` for each row, faster.

    Rows whose value types match one of the `shapes` go to `make`, which gives the same result in a fraction of the time
    or raises ValueError; all others go to `read`. Nearly all of tens of thousands of rows are valid.
    """
    found = []
    for row in rows:
        try:
            found.append(make(*row) if tuple(map(type, row)) in shapes else read(row))
        except ValueError:
            found.append(read(row))  # its error states the problem and the place
    return found


def decoded(type_: type[T], table: str, values: dict[str, Any], of: object = None) -> T:
    """Like `record`, from values by column name. Raises UnreadableRowError."""
    key = values.get("id", of)
    try:
        found = decode(type_, values)
    except CodecError as error:
        raise UnreadableRowError(table, key, str(error)) from error
    for name, low, high in _limits(typing.cast(Any, type_)):
        value = getattr(found, name)
        if value is not None and not low <= value <= high:
            raise UnreadableRowError(table, key, f"{name}: {value} is out of range")
    return found


@cache
def _limits(type_: Any) -> tuple[tuple[str, float, float], ...]:
    names = [field.name for field in fields(type_)]
    return tuple((name, *_RANGES[end]) for name in names for end in _RANGES if name.endswith(end))


def records(
    read: Callable[[Row[Any]], T], rows: Sequence[Row[Any]], job: str, unreadable: Unreadable | None
) -> list[T]:
    """All readable rows; `unreadable` is called for the others. The column `job` holds the job's id. Raises RowError if
    `unreadable` is None.

    The rows are a list because a cursor left open by an error would keep the file in use.
    """
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except RowError as error:
            if unreadable is None:
                raise
            unreadable(str(row._mapping[job]), error)
    return found


def document(codec: Codec[T], text: Any, table: str, key: object) -> T:
    """Decodes a column that holds a versioned document. Raises UnreadableRowError."""
    try:
        return codec.loads(text)
    except CodecError as error:
        raise UnreadableRowError(table, key, str(error)) from error


def mapping(table: str, key: object, text: Any) -> dict[str, Any]:
    """Decodes a column that holds a JSON object. Raises UnreadableRowError."""
    try:
        return loads(dict[str, Any], text)
    except CodecError as error:
        raise UnreadableRowError(table, key, str(error)) from error


def values_of(column: Column[Any], found: Iterable[Any], type_: type[T]) -> list[T]:
    """The values of one column, after checking that each has this type. Raises UnreadableRowError."""
    values = list(found)
    for value in values:
        if type(value) is not type_:
            raise UnreadableRowError(column.table.name, "row", f"{column.name}: {value!r} has the wrong type")
    return values


def checked(table: str, rows: Iterable[R], types: tuple[type, ...]) -> Iterator[R]:
    """The rows, after checking that their values have these types. Raises UnreadableRowError."""
    for row in list(rows):
        if tuple(map(type, row)) != types:
            raise UnreadableRowError(table, "row", f"{tuple(row)!r} has values of the wrong types")
        yield row


def whole_numbers(table: str, rows: Sequence[Sequence[Any]], *, but: tuple[type, ...] = ()) -> Sequence[Any]:
    """The rows, after checking that every value is an integer or of a type in `but`. Raises UnreadableRowError."""
    allowed = {int, *but}
    if not allowed.issuperset(map(type, chain.from_iterable(rows))):
        bad = next(row for row in rows if not allowed.issuperset(map(type, row)))
        raise UnreadableRowError(table, "row", f"{tuple(bad)!r} has values of the wrong types")
    return rows
