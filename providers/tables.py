"""Reads tables from untrusted files within limits on line length, name length, contents and size.

The sizes that a file declares are not trusted: compressed text is counted while it is decompressed.
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
MAX_TABLE_CHARACTERS = 256 << 20  # decompressed
MAX_ROWS = 1_000_000  # per table; about 300 bytes of memory each
MAX_COLUMNS = 1_000
MAX_NAME_CHARACTERS = 200
MAX_PART_BYTES = 128 << 20  # decompressed, per Parquet column chunk
MAX_CELL_BYTES = MAX_LINE_CHARACTERS
EARLIEST_MS = round(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000)
LATEST_MS = round(datetime(3000, 1, 1, tzinfo=UTC).timestamp() * 1000)  # simulated markets run ahead of the calendar

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_BATCH_ROWS = 1_000
_SHOWN_CHARACTERS = 60


class TableTooLargeError(ValueError):
    """A table exceeds a limit; the message says which one and what to do."""


def shown(text: str) -> str:
    """Untrusted text as a message quotes it: shortened, and without characters that control a terminal."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def checked_text(text: str) -> str:
    """`text` if it is a valid name. Raises ValueError that says what is wrong with it."""
    if len(text) > MAX_NAME_CHARACTERS:
        raise ValueError(f"{shown(text)} has {len(text)} characters; the limit is {MAX_NAME_CHARACTERS}")
    if not text.isprintable():
        for character in text:
            if category(character) in _HIDDEN:
                raise ValueError(f"{shown(text)} contains the invisible character U+{ord(character):04X}")
    return text


def checked_name(text: str) -> str:
    """`text` if it can be part of an offer id. Raises ValueError otherwise.

    A slash would merge two offers into one id, and spreadsheets execute text that starts like a formula.
    """
    checked_text(text)
    if "/" in text or any(character.isspace() for character in text):
        raise ValueError(f"{shown(text)} contains a slash or a space")
    if text != "-" and text.startswith(("=", "+", "-", "@", "'")):
        raise ValueError(f"{shown(text)} starts with {text[0]!r}, like a formula")
    return text


def checked_instant(at: datetime) -> int:
    """Convert to epoch ms; a time without a zone is UTC. Raises ValueError outside the years 2000 to 2999."""
    try:
        at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except OverflowError:
        at_ms = -1
    if not EARLIEST_MS <= at_ms < LATEST_MS:
        raise ValueError(f"{at.isoformat()} is not between the years 2000 and 2999")
    return at_ms


@contextmanager
def text_of(raw: BinaryIO, *, packed: bool) -> Iterator[TextIO]:
    """Open a UTF-8 file as text; `packed` (gzip) text is decompressed as it is read."""
    stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        yield text


def bounded_lines(text: TextIO) -> Iterator[str]:
    """The lines of a text with their line ends.

    Raises TableTooLargeError, UnicodeDecodeError, and OSError, EOFError or zlib.error for damaged compressed text.
    """
    characters = 0
    while line := text.readline(MAX_LINE_CHARACTERS + 1):
        characters += len(line)
        if len(line) > MAX_LINE_CHARACTERS:
            raise TableTooLargeError(f"a line has more than {MAX_LINE_CHARACTERS} characters")
        if characters > MAX_TABLE_CHARACTERS:
            raise TableTooLargeError(f"the file has more than {MAX_TABLE_CHARACTERS >> 20} MiB of text: split it")
        yield line


class _CutShort:
    """Placeholder for the fields that a row lacks."""


def named_rows(reader: csv.DictReader[Any]) -> Iterator[tuple[int, Mapping[Any, Any]]]:
    """Yields (line number, fields by name) for each CSV row, including incomplete ones (see require_whole).

    Raises csv.Error, and any error of the lines.
    """
    reader.restval = _CutShort
    for row in reader:
        yield reader.line_num, row


def require_whole(row: Mapping[Any, Any]) -> None:
    """Raises ValueError if a row of `named_rows` has fewer or more fields than the header, so that it is truncated or
    its fields are shifted, or if it is damaged: no table has a NUL character.
    """
    if _CutShort in row.values():
        present = sum(value is not _CutShort for value in row.values())
        raise ValueError(f"has {present} fields, but the header names {len(row)}: the row is truncated")
    if None in row:  # csv.DictReader.restkey
        present = len(row) - 1 + len(row[None])
        raise ValueError(f"has {present} fields, but the header names {len(row) - 1}: quote fields that contain commas")
    for name, value in row.items():
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"has a NUL character in {shown(name)}: the file is damaged, or is not text")


def bounded_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """The same rows. Raises TableTooLargeError if there are more than MAX_ROWS."""
    for number, row in enumerate(rows, 1):
        if number > MAX_ROWS:
            raise TableTooLargeError(f"the table has more than {MAX_ROWS} rows: split it")
        yield row


def parquet_rows(file: Any, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of an open pyarrow.parquet.ParquetFile, limited to the `columns` that exist and are not nested.

    Raises TableTooLargeError before anything too large is decompressed, and pyarrow's exceptions.
    """
    import pyarrow
    import pyarrow.compute

    known = [each.name for each in file.schema_arrow if each.name in columns and not pyarrow.types.is_nested(each.type)]
    rows = _parquet_batch_rows(file.metadata, set(known))
    for batch in file.iter_batches(rows, columns=known):
        for column in batch.columns:
            _check_cells(column, pyarrow)
        yield from batch.to_pylist()


def require_bounded_parquet(metadata: Any) -> None:
    """Raises TableTooLargeError if the metadata of a Parquet file declares too many columns or rows; reads no data."""
    if metadata.num_columns > MAX_COLUMNS:
        raise TableTooLargeError(f"the file has {metadata.num_columns} columns; the limit is {MAX_COLUMNS}")
    if metadata.num_rows > MAX_ROWS:
        raise TableTooLargeError(f"the file has {metadata.num_rows} rows; the limit is {MAX_ROWS}: split it")


def _parquet_batch_rows(metadata: Any, names: set[str]) -> int:
    """Rows per batch that bound its memory under any encoding: one stored value may be as long as the whole chunk."""
    require_bounded_parquet(metadata)
    largest = 1
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema in names:
                if chunk.total_uncompressed_size > MAX_PART_BYTES:
                    size = f"{chunk.total_uncompressed_size >> 20} MiB of {chunk.path_in_schema} in one chunk"
                    limit = f"the limit is {MAX_PART_BYTES >> 20} MiB"
                    raise TableTooLargeError(f"the file has {size}; {limit}: split it")
                if chunk.physical_type == "BYTE_ARRAY":
                    largest = max(largest, chunk.total_uncompressed_size)
    return max(1, min(_BATCH_ROWS, MAX_PART_BYTES // largest))


def _check_cells(column: Any, pyarrow: Any) -> None:
    kind = column.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_binary(kind):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(column)).as_py()
        if longest is not None and longest > MAX_CELL_BYTES:
            raise TableTooLargeError(f"a cell has {longest} bytes; the limit is {MAX_CELL_BYTES}")
