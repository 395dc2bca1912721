"""Rows of a CSV file written by people: every mistake is recorded with its line and column, and all are reported at
once.

Reading continues after a mistake, so a file can be corrected in one go.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from orchestrator.config.paths import opened_file
from orchestrator.errors import Problem, did_you_mean

MOST_PROBLEMS = 20
"""The most mistakes listed for one file; the rest are counted."""


class Mistakes:
    """The mistakes in one file."""

    def __init__(self, path: Path) -> None:
        self.path, self._found = path, list[Problem]()

    def note(self, line: int, column: int, field: str, message: str, hint: str) -> None:
        """Add a mistake. `line` and `column` count from 1; line 0 stands for the whole file."""
        self._found.append(Problem(str(self.path), line, column, field, message, hint))

    def __len__(self) -> int:
        return len(self._found)

    def problems(self) -> list[Problem]:
        """The first MOST_PROBLEMS mistakes in the order of the file, and the number of further ones."""
        found = sorted(self._found, key=lambda each: (each.line, each.column))
        more = len(found) - MOST_PROBLEMS
        if more <= 0:
            return found
        rest = f"{more} more {'mistake' if more == 1 else 'mistakes'}; correct these first"
        return [*found[:MOST_PROBLEMS], Problem(str(self.path), 0, 0, "", rest)]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells by column name, and its position."""

    cells: Mapping[str, str]
    line: int
    _places: Mapping[str, tuple[int, int]]
    _mistakes: Mistakes

    def wrong(self, field: str, message: str, hint: str) -> None:
        """Record a mistake in a cell."""
        self._mistakes.note(*self._places.get(field, (self.line, 1)), field, message, hint)

    def number(
        self, field: str, what: str, *, least: float, most: float = math.inf, default: float | None = None
    ) -> float:
        """A finite number; NaN, with the mistake recorded, if the cell has none from `least` to `most`. `what`
        describes the expected value."""
        text = self.cells.get(field, "").strip()
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if least <= value <= most and value < math.inf:
            return value
        expected = "a number" if least <= 0 else f"a number of at least {least:g}"
        if most < math.inf:
            expected += f" of at most {most:g}" if least <= 0 else f" and at most {most:g}"
        self.wrong(field, f"{text!r} is not {expected}" if text else f"{field} is missing", f"write {what}")
        return math.nan

    def gpus(self, field: str, most: int, *, default: float | None = None) -> float:
        """A number of GPUs; NaN, with the mistake recorded, if the cell has none."""
        what = f"a whole number of GPUs, from 1 to {most:,}"
        value = self.number(field, what, least=1, most=most, default=default)
        if not math.isnan(value) and value != int(value):
            self.wrong(field, f"{self.cells[field]!r} is not a number of GPUs", f"write {what}")
            return math.nan
        return value


def rows(mistakes: Mistakes, needed: Sequence[str], *, absent: str) -> Iterator[Row]:
    """The rows of a file with these columns. An unreadable file or row is a mistake, too; `absent` is the remedy for a
    file that does not exist."""
    try:
        with opened_file(mistakes.path) as raw, TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            records = _records(file)
            columns = next(records, _Record(1, "", ())).cells
            missing = [name for name in needed if name not in columns]
            for name in missing:
                near = did_you_mean(name, columns) or f"it has {', '.join(columns) or 'no columns'}"
                mistakes.note(1, 1, name, "the column is missing", near)
            for name in {name for name in needed if columns.count(name) > 1}:
                mistakes.note(1, 1, name, "the column occurs twice", "remove one of them")
            if mistakes:
                return
            for record in records:
                if len(record.cells) > len(columns):
                    message = f"there are more values than the {len(columns)} columns"
                    hint = "put a value that contains a comma in double quotes"
                    mistakes.note(*record.place(len(columns)), "", message, hint)
                    continue
                cells = dict(zip(columns, (*record.cells, *[""] * len(columns)), strict=False))
                places = {name: record.place(index) for index, name in enumerate(columns)}
                damaged = [name for name in columns if "\0" in cells[name]]
                for name in damaged:
                    hint = "the file is damaged, or is not text: copy or save it again"
                    mistakes.note(*places[name], name, "it contains a NUL character", hint)
                if not damaged:
                    yield Row(cells, record.line, places, mistakes)
    except FileNotFoundError:
        mistakes.note(0, 0, "", "the file does not exist", absent)
    except OSError as error:
        mistakes.note(0, 0, "", f"it cannot be read: {error.strerror}", "name a CSV file that you may read")
    except (UnicodeDecodeError, csv.Error) as error:
        mistakes.note(0, 0, "", f"it cannot be read as CSV: {error}", "save it as CSV in UTF-8")


@dataclass(frozen=True, slots=True)
class _Record:
    line: int  # of its start
    text: str
    cells: Sequence[str]

    def place(self, index: int) -> tuple[int, int]:
        """(line, column) where a cell begins; for a missing cell, where the row ends."""
        text, at = self.text.rstrip("\r\n"), 0
        for _ in range(index):
            at = _after_comma(text, at)
        before = text[:at]
        return self.line + before.count("\n"), at - (before.rfind("\n") + 1) + 1


def _after_comma(text: str, at: int) -> int:
    """The position after the next comma outside double quotes; the end if there is none."""
    quoted = False
    for index in range(at, len(text)):
        if text[index] == '"':
            quoted = not quoted
        elif text[index] == "," and not quoted:
            return index + 1
    return len(text)


def _records(file: Iterator[str]) -> Iterator[_Record]:
    """The records of a CSV file, without empty lines."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in file:
            taken.append(line)
            yield line

    reader = csv.reader(lines())
    for cells in reader:
        text, first = "".join(taken), reader.line_num - len(taken) + 1
        taken.clear()
        if cells:
            yield _Record(first, text, cells)
