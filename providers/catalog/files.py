"""Reads the catalogue's CSV files line by line; a `Finding` says what is wrong, where, and what to do about it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

from providers.errors import SetupError
from providers.tables import (
    EARLIEST_MS,
    LATEST_MS,
    TableTooLargeError,
    bounded_lines,
    bounded_rows,
    checked_text,
    shown,
)

DATA = Path(__file__).parent / "data"
MAX_HEADER_CHARACTERS = 1_000  # of a header that a finding quotes


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in the catalogue: the file, the line (from 1; 0 = the whole file), the field, and what to do."""

    file: str
    line: int
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """DELETE"""
        where = f"{self.file}:{self.line}:" if self.line else f"{self.file}:"
        return " ".join([where, *([f"{self.field}:"] if self.field else []), self.message, f"({self.remedy})"])


class CatalogError(SetupError):
    """A catalogue file cannot be used. `findings` lists all problems; str() has one per line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)), hint="correct these lines, then run: tradewind catalog verify")
        self.findings = tuple(findings)


Report = Callable[[Finding], None]
Line = tuple[int, dict[str, str]]


@cache
def label(path: Path) -> str:
    """How findings name a file: the catalogue's own by name, others by path."""
    return path.name if path.parent.name == DATA.name else str(path)


def lines(path: Path, columns: Sequence[str], report: Report, *, optional: Sequence[str] = ()) -> Iterator[Line]:
    """(line number, fields) of a CSV file whose header must have `columns` and may have `optional` ones, but no others.

    Problems are passed to `report`.
    """
    name = label(path)
    try:
        file = path.open(newline="", encoding="utf-8-sig")
    except OSError as error:
        report(Finding(name, 0, "", f"cannot be read: {error.strerror}", "name a CSV file that exists"))
        return
    with file:
        reader = csv.reader(bounded_rows(bounded_lines(file)))
        try:
            head = next(reader, [])
            if not set(columns) <= set(head) <= {*columns, *optional} or len(set(head)) < len(head):
                wanted, found = ",".join(columns), ",".join(head)
                header = found if found.isprintable() and len(found) <= MAX_HEADER_CHARACTERS else shown(found)
                report(Finding(name, 1, "header", f"is {header or 'missing'}", f"write: {wanted}"))
                return
            for cells in reader:
                if len(cells) == len(head):
                    if _readable(name, reader.line_num, head, cells, report):
                        yield reader.line_num, dict(zip(head, cells, strict=True))
                elif cells:
                    message = f"has {len(cells)} fields, not {len(head)}"
                    report(Finding(name, reader.line_num, "", message, "quote fields that contain a comma"))
        except TableTooLargeError as error:
            report(Finding(name, reader.line_num, "", str(error), "split the file"))
        except (csv.Error, UnicodeDecodeError) as error:
            report(Finding(name, reader.line_num, "", f"is not CSV in UTF-8: {error}", "save it as CSV in UTF-8"))


def _readable(name: str, line: int, head: Sequence[str], cells: Sequence[str], report: Report) -> bool:
    """True if no field of the line is too long or has invisible characters; others are reported."""
    found = True
    for field, cell in zip(head, cells, strict=True):
        try:
            checked_text(cell)
        except ValueError as error:
            report(Finding(name, line, field, str(error), "shorten it, or remove the invisible characters"))
            found = False
    return found


@cache
def day_ms(day: str) -> int | None:
    """The start of a day YYYY-MM-DD (UTC) in epoch ms; None if it is not a day from 2000 to 2999."""
    try:
        found = date.fromisoformat(day)
    except ValueError:
        return None
    if found.isoformat() != day:
        return None
    at_ms = int(datetime(found.year, found.month, found.day, tzinfo=UTC).timestamp() * 1000)
    return at_ms if EARLIEST_MS <= at_ms < LATEST_MS else None


def number(text: str) -> float | None:
    """A finite number; None if the text is not one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
