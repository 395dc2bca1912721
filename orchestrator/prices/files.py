"""Reads and writes price tables row by row, as CSV (also .gz) and Parquet.

pyarrow comes with the extra `analysis` and is imported only for Parquet.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.errors import MissingExtraError, UsageError
from orchestrator.formats.csv_cells import write_table
from orchestrator.formats.whole_file import to_be
from providers.tables import (
    MAX_COLUMNS,
    TableTooLargeError,
    bounded_lines,
    bounded_rows,
    named_rows,
    parquet_rows,
    require_bounded_parquet,
    text_of,
)

Row = Mapping[str, Any]
SUFFIXES = (".csv", ".csv.gz", ".parquet")
_BATCH = 20_000


def is_table(path: Path) -> bool:
    """Whether the file name has the suffix of a table."""
    return path.name.lower().endswith(SUFFIXES)


def columns_of(path: Path) -> tuple[str, ...]:
    """The names of a file's columns. Raises UsageError if it is not a table, MissingExtraError."""
    with _faults(path):
        if path.name.lower().endswith(".parquet"):
            file = _parquet().ParquetFile(path)
            require_bounded_parquet(file.metadata)
            return tuple(file.schema_arrow.names)
        with _text(path) as stream:
            names = tuple(csv.DictReader(bounded_lines(stream)).fieldnames or ())
        if len(names) > MAX_COLUMNS:
            raise TableTooLargeError(f"it has {len(names)} columns; at most {MAX_COLUMNS} are allowed")
        return names


def rows_of(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield (line of a CSV file or row of a Parquet file, from 1; its values), for Parquet only these columns. CSV rows
    may be incomplete (providers.tables.require_whole).

    A file larger than any price table is rejected before it fills the memory. Raises UsageError, MissingExtraError.
    """
    with _faults(path):
        if path.name.lower().endswith(".parquet"):
            yield from enumerate(parquet_rows(_parquet().ParquetFile(path), columns), 1)
            return
        with _text(path) as stream:
            yield from bounded_rows(named_rows(csv.DictReader(bounded_lines(stream), strict=True)))


def archived_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Like `rows_of`, for a Parquet file from `write_rows`, without a size limit. Raises UsageError,
    MissingExtraError."""
    with _faults(path):
        batches = _parquet().ParquetFile(path).iter_batches(_BATCH)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Write a table atomically, in the format given by the name of `path`. Returns the number of rows.

    Decimals have nine places; times are UTC. Raises UsageError, MissingExtraError.
    """
    if not is_table(path):
        raise UsageError(
            f"the format of {path.name} is not known", hint=f"use a name that ends with {', '.join(SUFFIXES)}"
        )
    try:
        with to_be(path) as unfinished:
            if path.name.lower().endswith(".parquet"):
                return _write_parquet(unfinished, columns, iter(rows))
            opened = gzip.open if path.name.lower().endswith(".gz") else open
            with opened(unfinished, "wt", encoding="utf-8", newline="") as stream:
                return write_table(stream, columns, rows)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", hint="choose another path") from error


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> int:
    import pyarrow

    kinds = {
        "price_per_hour": pyarrow.decimal128(18, 9),
        "effective_at": pyarrow.timestamp("ms", tz="UTC"),
        "observed_at": pyarrow.timestamp("ms", tz="UTC"),
        "gpu_count": pyarrow.int32(),
        "vcpu": pyarrow.int32(),
        "memory_gib": pyarrow.float64(),
        "simulated": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in columns])
    written = 0
    with _parquet().ParquetWriter(path, schema, compression="zstd") as writer:
        while part := list(islice(rows, _BATCH)):
            arrays = [
                pyarrow.array(values, kind.type) for values, kind in zip(zip(*part, strict=True), schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            written += len(part)
    return written


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    return parquet


@contextmanager
def _text(path: Path) -> Iterator[Any]:
    with path.open("rb") as raw, text_of(raw, packed=path.name.lower().endswith(".gz")) as stream:
        yield stream


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Turn reading errors into a UsageError with the file and the remedy."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from error
    except csv.Error as error:
        raise UsageError(f"{path} is not CSV: {error}", hint="the first line must contain the column names") from error
    except TableTooLargeError as error:
        raise UsageError(f"{path} is too large: {error}", hint="import it in parts") from error
    except EOFError as error:
        raise UsageError(f"{path} is incomplete", hint="download it again") from error
    except zlib.error as error:
        raise UsageError(f"{path} cannot be decompressed: {error}", hint="download it again") from error
    except OSError as error:  # also gzip.BadGzipFile and pyarrow's own errors
        hint = "check that the path is right and the file is complete"
        raise UsageError(f"{path} cannot be read: {error.strerror or str(error)[:200]}", hint=hint) from error
    except ValueError as error:  # pyarrow.ArrowInvalid
        raise UsageError(f"{path} is not a valid Parquet file: {str(error)[:200]}", hint="download it again") from error
