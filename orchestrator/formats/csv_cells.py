"""Text in the cells of CSV files that people open in a spreadsheet.

A spreadsheet runs a cell that begins with one of FORMULA as a formula. An apostrophe before it makes it text (OWASP,
"CSV Injection"). Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import TextIO

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With the full-width twins of the first four, which some spreadsheets take for them."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def cell(text: str) -> str:
    """`text`, so that no spreadsheet runs it. A lone hyphen is no formula: it stands for "none" in prices."""
    if not text.startswith(FORMULA) or text == "-" or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


def write_table(out: TextIO, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """Header and rows; text is made safe, and None is an empty cell. Returns the number of rows."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    written = 0
    for row in rows:
        writer.writerow([cell(value) if isinstance(value, str) else value for value in row])
        written += 1
    return written


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """As `write_table`, as one text."""
    out = io.StringIO()
    write_table(out, columns, rows)
    return out.getvalue()
