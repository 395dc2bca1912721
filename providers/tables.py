"""Tables that strangers wrote, within bounds: how long a line, a name or a table may be, and what a name may hold.

Nothing here trusts what a file says of its own size: packed text is unpacked as it is read and counted.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO
from unicodedata import category

MAX_LINE_CHARACTERS = 1 << 16
MAX_TABLE_CHARACTERS = 256 << 20  # unpacked
MAX_ROWS = 1_000_000  # of one table; some 300 bytes of memory each
MAX_COLUMNS = 1_000
MAX_NAME_CHARACTERS = 200
MAX_PART_BYTES = 128 << 20  # unpacked, of what Parquet holds of one column in one piece
MAX_CELL_BYTES = MAX_LINE_CHARACTERS
EARLIEST_MS = round(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000)
LATEST_MS = round(datetime(3000, 1, 1, tzinfo=UTC).timestamp() * 1000)  # simulated markets run ahead of the calendar

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_BATCH_ROWS = 1_000
_SHOWN_CHARACTERS = 60


class TableTooLargeError(ValueError):
    """A table that is larger than any that is meant; its text says which bound was passed, and what to do."""


def shown(text: str) -> str:
    """What a message quotes of a stranger's text: not much, and nothing that steers a terminal."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def checked_text(text: str) -> str:
    """`text`, which may be a name of something. Raises ValueError that says what is wrong with it."""
    if len(text) > MAX_NAME_CHARACTERS:
        raise ValueError(f"{shown(text)} has {len(text)} characters, and {MAX_NAME_CHARACTERS} are the most")
    if not text.isprintable():
        for character in text:
            if category(character) in _HIDDEN:
                raise ValueError(f"{shown(text)} holds U+{ord(character):04X}, which no reader would see")
    return text


def checked_name(text: str) -> str:
    """`text`, which may be a part of an offer's identity: a slash in it would make two offers one, and what begins
    like a formula is run by spreadsheets. Raises ValueError."""
    checked_text(text)
    if "/" in text or any(character.isspace() for character in text):
        raise ValueError(f"{shown(text)} holds a slash or a space")
    if text != "-" and text.startswith(("=", "+", "-", "@", "'")):
        raise ValueError(f"{shown(text)} begins with {text[0]!r}, like a formula")
    return text


def checked_instant(at: datetime) -> int:
    """Epoch ms; without a zone it is UTC. Raises ValueError for one outside of 2000 to 2999."""
    try:
        at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except OverflowError:
        at_ms = -1
    if not EARLIEST_MS <= at_ms < LATEST_MS:
        raise ValueError(f"{at.isoformat()} is not between the years 2000 and 2999")
    return at_ms


@contextmanager
def text_of(raw: BinaryIO, *, packed: bool) -> Iterator[TextIO]:
    """The text of a UTF-8 file, unpacked as it is read."""
    stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        yield text


def bounded_lines(text: TextIO) -> Iterator[str]:
    """Its lines, with their ends. Raises TableTooLargeError, UnicodeDecodeError; OSError, EOFError or zlib.error for
    packed text that is damaged."""
    characters = 0
    while line := text.readline(MAX_LINE_CHARACTERS + 1):
        characters += len(line)
        if len(line) > MAX_LINE_CHARACTERS:
            raise TableTooLargeError(f"a line has more than {MAX_LINE_CHARACTERS} characters")
        if characters > MAX_TABLE_CHARACTERS:
            raise TableTooLargeError(f"it holds more than {MAX_TABLE_CHARACTERS >> 20} MiB of text: divide it")
        yield line


class _CutShort:
    """Stands in the place of fields that a row does not have."""


def named_rows(reader: csv.DictReader[Any]) -> Iterator[tuple[int, Mapping[Any, Any]]]:
    """(number of its line in the file, its fields by name) for each row of CSV, also those that are not whole (see
    require_whole). Raises csv.Error, and what the lines raise."""
    reader.restval = _CutShort
    for row in reader:
        yield reader.line_num, row


def require_whole(row: Mapping[Any, Any]) -> None:
    """Raises ValueError for one of `named_rows` that has fewer or more fields than the first line has names: one that
    was cut short, or whose fields are not where they seem to be."""
    if _CutShort in row.values():
        present = sum(value is not _CutShort for value in row.values())
        raise ValueError(f"has {present} fields, and the first line names {len(row)}: it was cut short")
    if None in row:  # csv.DictReader.restkey
        present = len(row) - 1 + len(row[None])
        raise ValueError(f"has {present} fields, and the first line names {len(row) - 1}: a comma needs quotes")


def bounded_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """The same rows. Raises TableTooLargeError when they are too many."""
    for number, row in enumerate(rows, 1):
        if number > MAX_ROWS:
            raise TableTooLargeError(f"it holds more than {MAX_ROWS} rows: divide it")
        yield row


def parquet_rows(file: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of an open pyarrow.parquet.ParquetFile, in those of `columns` that it has and whose values are no lists
    or structures. Raises TableTooLargeError before it unpacks what is too large, and whatever pyarrow raises."""
    import pyarrow
    import pyarrow.compute

    known = [each.name for each in file.schema_arrow if each.name in columns and not pyarrow.types.is_nested(each.type)]
    rows = _parquet_batch_rows(file.metadata, set(known))
    for batch in file.iter_batches(rows, columns=known):
        for column in batch.columns:
            _check_cells(column, pyarrow)
        yield from batch.to_pylist()


def require_bounded_parquet(metadata: Any) -> None:
    """Raises TableTooLargeError for what a Parquet file says of itself; reads nothing else of it."""
    if metadata.num_columns > MAX_COLUMNS:
        raise TableTooLargeError(f"it has {metadata.num_columns} columns, and {MAX_COLUMNS} are the most")
    if metadata.num_rows > MAX_ROWS:
        raise TableTooLargeError(f"it holds {metadata.num_rows} rows, and {MAX_ROWS} are the most: divide it")


def _parquet_batch_rows(metadata: Any, names: set[str]) -> int:
    """So many rows at a time, that no encoding makes them large: one value may be as long as all that is stored."""
    require_bounded_parquet(metadata)
    largest = 1
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema in names:
                if chunk.total_uncompressed_size > MAX_PART_BYTES:
                    size = f"{chunk.total_uncompressed_size >> 20} MiB of {chunk.path_in_schema} in one piece"
                    raise TableTooLargeError(f"it holds {size}, and {MAX_PART_BYTES >> 20} are the most: divide it")
                if chunk.physical_type == "BYTE_ARRAY":
                    largest = max(largest, chunk.total_uncompressed_size)
    return max(1, min(_BATCH_ROWS, MAX_PART_BYTES // largest))


def _check_cells(column: Any, pyarrow: Any) -> None:
    kind = column.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_binary(kind):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(column)).as_py()
        if longest is not None and longest > MAX_CELL_BYTES:
            raise TableTooLargeError(f"a cell has {longest} bytes, and {MAX_CELL_BYTES} are the most")
