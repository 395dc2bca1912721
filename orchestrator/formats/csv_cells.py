"""CSV files that are safe to open in a spreadsheet, with numbers that every reader understands.

Spreadsheets evaluate a cell that begins with a character in FORMULA, also after spaces. A leading apostrophe makes it
text (OWASP, "CSV Injection"). Numbers stay numbers. Hidden characters are written as escapes: a table may be printed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TextIO

from orchestrator.formats.hidden import visible

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Includes the full-width forms of the first four, which some spreadsheets treat like them."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def cell(text: str) -> str:
    """`text`, escaped so that spreadsheets do not evaluate it. A single hyphen is kept: it means "none" in price
    tables."""
    text = visible(text, "\t\r\n")
    if not text.startswith(FORMULA) and not text.lstrip().startswith(FORMULA):
        return text
    return text if text == "-" or _NUMBER.fullmatch(text) else f"'{text}"


def _written(value: object) -> object:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return cell(value) if isinstance(value, str) else value


def write_table(out: TextIO, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """Writes header and rows. Text is escaped, a Decimal is exact and has no exponent, None is an empty cell. Returns
    the number of rows."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    written = 0
    for row in rows:
        writer.writerow([_written(value) for value in row])
        written += 1
    return written


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Like `write_table`, as a string."""
    out = io.StringIO()
    write_table(out, columns, rows)
    return out.getvalue()
