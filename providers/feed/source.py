"""Source `feed:NAME`: a CSV or Parquet file, by path or URL, whose rows are prices (columns: docs/collectors.md).

A row that cannot be read is flagged with file, line and field; the others are used.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from providers.collect.facts import Finding, Flag, PollResult, gather, hourly_price
from providers.collect.http import Http, Patience
from providers.errors import CutOffError, FormatError, NotFoundError, ProviderError, SetupError
from providers.hardware import GIB, canonical_gpu
from providers.money import NANO_USD
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from providers.tables import (
    TableTooLargeError,
    bounded_lines,
    bounded_rows,
    checked_instant,
    checked_name,
    checked_text,
    named_rows,
    parquet_rows,
    require_whole,
    text_of,
)
from providers.tables import shown as quoted

T = TypeVar("T")
U = TypeVar("U")

REQUIRED = ("provider", "region", "instance_type", "gpu_count", "capacity_type", "price_per_hour")
OPTIONAL = ("zone", "gpu", "vcpu", "memory_gib", "currency", "effective_at")
ALL_ROWS = "all"

Row = Mapping[str, Any]


class Feed:
    """`at` is a path or an http(s) URL; a name ending in .parquet is Parquet, anything else CSV (.gz is decompressed).

    `usd_per_unit` gives exchange rates as text: {"EUR": "1.08"}.
    """

    provider = "feed"

    def __init__(
        self,
        *,
        name: str = "feed",
        at: str,
        usd_per_unit: Mapping[str, str] | None = None,
        read_s: float = 30.0,
        attempts: int = 3,
    ) -> None:
        self.name = name
        self._at = at
        self._rates = {"USD": "1", **(usd_per_unit or {})}
        self._http = Http(Patience(read_s=read_s, attempts=attempts))

    def regions(self) -> Sequence[str]:
        """One region, `all`: a file is always read whole."""
        return [ALL_ROWS]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """All prices in the file, as of now."""
        return gather(region, lambda finding: self._read(finding, now_ms), _file_fault)

    def _read(self, finding: Finding, now_ms: int) -> None:
        shown = self._at.partition("?")[0]
        finding.pages += 1
        for line, row in self._rows(shown):
            finding.rows += 1
            try:
                _checked("", require_whole, row)
                offer, point, unknown = self._price(row, now_ms, shown)
            except _BadField as bad:
                field = f", field {bad.field}" if bad.field else ""
                finding.flag(bad.flag, f"{shown}:{line}", f"{shown}, row {line}{field}: {bad}")
                continue
            if unknown:
                finding.flag(Flag.UNKNOWN_GPU, offer.id, f"{shown}, row {line}: GPU {unknown!r}", offer, point)
            else:
                finding.price(offer, point)

    def _rows(self, shown: str) -> Iterator[tuple[int, Row]]:
        if urlsplit(self._at).scheme in ("http", "https"):
            yield from _rows(io.BytesIO(self._http.get_bytes(self._at)), shown)
            return
        path = Path(self._at)
        if path.exists() and not path.is_file():  # reading a pipe could block forever
            raise NotFoundError(f"{shown} is not a regular file", hint="check the path of the feed")
        with path.open("rb") as file:
            yield from _rows(file, shown)

    def _price(self, row: Row, now_ms: int, shown: str) -> tuple[Offer, PricePoint, str]:
        """(offer, price, GPU name if it is unknown). Raises _BadField."""
        count = _count(row)
        named = _text(row, "gpu", optional=count == 0)
        if named and not count:
            raise _BadField("gpu_count", f"is 0, but gpu is {quoted(named)}")
        gpu = canonical_gpu(named) if count else None
        capacity = _text(row, "capacity_type").replace("-", "_").lower()
        if capacity not in list(CapacityType):
            raise _BadField("capacity_type", f"{quoted(capacity)} is neither spot nor on_demand")
        offer = Offer(
            _word(row, "provider"),
            _word(row, "region"),
            _word(row, "zone", optional=True),
            _word(row, "instance_type"),
            gpu,
            count,
            _number(row, "vcpu", 0),
            _number(row, "memory_gib", 0) * GIB,
            CapacityType(capacity),
        )
        point = PricePoint(offer.id, self._nano(row), _instant(row, now_ms), now_ms, f"feed {shown}")
        return offer, point, "" if gpu or not count else named

    def _nano(self, row: Row) -> int:
        currency = _text(row, "currency", optional=True).upper() or "USD"
        rate = self._rates.get(currency)
        if rate is None:
            text = f"{quoted(currency)} has no exchange rate: set it in usd_per_unit = {{... = ...}}"
            raise _BadField("currency", text, Flag.CURRENCY)
        try:
            nano_usd = hourly_price(_text(row, "price_per_hour")) * hourly_price(rate) // NANO_USD
        except ValueError as error:
            raise _BadField("price_per_hour", str(error)) from None
        if nano_usd == 0:
            raise _BadField("price_per_hour", "is less than a billionth of a dollar per hour")
        return nano_usd


class _BadField(ValueError):
    def __init__(self, field: str, message: str, flag: Flag = Flag.MALFORMED) -> None:
        super().__init__(message)
        self.field = field
        self.flag = flag


def _text(row: Row, field: str, *, optional: bool = False) -> str:
    value = row.get(field)
    text = "" if value is None else str(value).strip()
    if not text and not optional:
        raise _BadField(field, "is empty")
    return _checked(field, checked_text, text)


def _word(row: Row, field: str, *, optional: bool = False) -> str:
    """A field that becomes part of an offer id."""
    return _checked(field, checked_name, _text(row, field, optional=optional))


def _checked(field: str, check: Callable[[T], U], value: T) -> U:
    try:
        return check(value)
    except ValueError as error:
        raise _BadField(field, str(error)) from None


def _count(row: Row) -> int:
    """The number of GPUs, which must be whole: jobs cannot request machines with part of a GPU."""
    text = _text(row, "gpu_count", optional=True)
    count = _number(row, "gpu_count", 0)
    if text and float(text) != count:
        raise _BadField("gpu_count", f"{quoted(text)} is not a whole number")
    return count


def _number(row: Row, field: str, missing: int) -> int:
    text = _text(row, field, optional=True)
    if not text:
        return missing
    try:
        number = float(text)
    except ValueError:
        raise _BadField(field, f"{quoted(text)} is not a number") from None
    if not 0 <= number < 1e6:
        raise _BadField(field, f"{quoted(text)} is out of range")
    return int(number)


def _instant(row: Row, now_ms: int) -> int:
    value = row.get("effective_at")
    if value is None or value == "":
        return now_ms
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        raise _BadField("effective_at", f"{quoted(str(value))} is not like 2026-11-21T13:00:00Z") from None
    at_ms = _checked("effective_at", checked_instant, at)
    if at_ms > now_ms:
        raise _BadField("effective_at", f"{quoted(str(value))} is in the future")
    return at_ms


def _rows(raw: BinaryIO, shown: str) -> Iterator[tuple[int, Row]]:
    """(line or row number, row). Raises FormatError if the file is not a table with the required columns or is too
    large.
    """
    try:
        if shown.endswith(".parquet"):
            yield from enumerate(_parquet(raw, shown), 1)
            return
        with text_of(raw, packed=shown.endswith(".gz")) as text:
            reader = csv.DictReader(bounded_lines(text))
            _require(reader.fieldnames or (), shown)
            yield from bounded_rows(named_rows(reader))
    except TableTooLargeError as error:
        raise FormatError(f"{shown} is too large: {error}") from error
    except EOFError as error:
        raise CutOffError(f"{shown} is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{shown} cannot be decompressed: {error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{shown} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from error
    except csv.Error as error:
        raise FormatError(f"{shown} is not CSV: {error}") from error


def _parquet(raw: BinaryIO, shown: str) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        hint = "pip install 'tradewind[analysis]'"
        raise SetupError(f"reading {shown} needs pyarrow, which is not installed", hint=hint) from error
    try:
        file = parquet.ParquetFile(raw)
        _require(file.schema_arrow.names, shown)
        yield from parquet_rows(file, REQUIRED + OPTIONAL)
    except TableTooLargeError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"{shown} is not a valid Parquet file: {str(error)[:200]}") from error


def _require(columns: Sequence[str], shown: str) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    unknown = [column for column in columns if column and column not in REQUIRED + OPTIONAL]
    if missing:
        seen = f"; unknown columns: {', '.join(unknown)}" if unknown else ""
        raise FormatError(
            f"{shown} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}{seen}",
            hint=f"required: {', '.join(REQUIRED)}; optional: {', '.join(OPTIONAL)}",
        )


def _file_fault(error: Exception) -> ProviderError | None:
    if isinstance(error, OSError):
        return NotFoundError(f"{error.filename} cannot be read: {error.strerror}", hint="check the path of the feed")
    return None
