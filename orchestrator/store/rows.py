"""Rows as nouns: what comes out of the database has the types that its fields promise, or the row is named as damaged.

SQLite notices neither a zeroed byte inside a page nor a value of another type in a column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

from sqlalchemy import Row

from orchestrator.errors import RowError, UnreadableRowError
from orchestrator.formats.codec import Codec, CodecError, decode, loads

T = TypeVar("T")
R = TypeVar("R", bound=Sequence[Any])
Unreadable = Callable[[str, RowError], object]
"""Hears of each row that is left out of a list because it cannot be read, with the id of the job that it belongs to;
where there is none, the first such row is raised."""


class _Row(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...

    def __iter__(self) -> Iterator[Any]: ...


def record(type_: type[T], table: str, row: _Row, *, of: object = None, **changed: Any) -> T:
    """The dataclass that a row's columns spell, with fields `changed` from what is stored; an error calls the row `of`
    where it has no id. Raises UnreadableRowError."""
    return decoded(type_, table, by_name(row) | changed, of)


def by_name(row: _Row) -> dict[str, Any]:
    """A row's values by the names of its columns, which are of a text class of SQLAlchemy's own."""
    return {str(name): value for name, value in zip(row._fields, row, strict=True)}


def quickly(
    rows: Sequence[Row[Any]],
    shapes: Collection[tuple[type, ...]],
    make: Callable[..., T],
    read: Callable[[Row[Any]], T],
) -> list[T]:
    """What `read` makes of each row. Those whose values have just the types of one of the `shapes` go to `make`, which
    comes to the same in a fraction of the time, or raises ValueError: of tens of thousands of rows nearly all are
    sound."""
    found = []
    for row in rows:
        try:
            found.append(make(*row) if tuple(map(type, row)) in shapes else read(row))
        except ValueError:
            found.append(read(row))  # it says what is wrong, and where
    return found


def decoded(type_: type[T], table: str, values: dict[str, Any], of: object = None) -> T:
    """As `record`, of the values of a row's columns by name."""
    try:
        return decode(type_, values)
    except CodecError as error:
        raise UnreadableRowError(table, values.get("id", of), str(error)) from error


def records(
    read: Callable[[Row[Any]], T], rows: Sequence[Row[Any]], job: str, unreadable: Unreadable | None
) -> list[T]:
    """All that can be read; the column `job` says whose each is. Raises RowError where nobody wants to hear of it.

    The rows are a list: a cursor that an error leaves open would keep the file in use.
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
    """The document of a column. Raises UnreadableRowError."""
    try:
        return codec.loads(text)
    except CodecError as error:
        raise UnreadableRowError(table, key, str(error)) from error


def mapping(table: str, key: object, text: Any) -> dict[str, Any]:
    """A JSON object of a column. Raises UnreadableRowError."""
    try:
        return loads(dict[str, Any], text)
    except CodecError as error:
        raise UnreadableRowError(table, key, str(error)) from error


def checked(table: str, rows: Iterable[R], types: tuple[type, ...]) -> Iterator[R]:
    """These rows, each of values of these types. Raises UnreadableRowError."""
    for row in list(rows):
        if tuple(map(type, row)) != types:
            raise UnreadableRowError(table, "row", f"{tuple(row)!r} is not what it can hold")
        yield row


def whole_numbers(table: str, rows: Sequence[Sequence[Any]], *, but: tuple[type, ...] = ()) -> Sequence[Any]:
    """These rows, of which every value is an integer, or of the types `but`. Raises UnreadableRowError."""
    allowed = {int, *but}
    if not allowed.issuperset(map(type, chain.from_iterable(rows))):
        bad = next(row for row in rows if not allowed.issuperset(map(type, row)))
        raise UnreadableRowError(table, "row", f"{tuple(bad)!r} is not what it can hold")
    return rows
