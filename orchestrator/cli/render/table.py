"""The only module that makes tables: columns that do not fit are left out by priority, and words are never broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cli.render.text import Screen, clean, folded, longest_word, width_of

GAP = "  "
TEXT = 40  # columns that sentences get before a low-priority number is shown
LITTLE_WEIGHT = 3  # a column with this `drop` or more makes room for sentences
LEAST_TEXT = 24  # columns: narrower sentences are put below their row
INDENT = "    "
NOTHING = ("", "-")


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and what happens to it on a narrow terminal.

    `drop`: 0 is always shown; among the others, the highest is left out first. `wide`: only with `--wide`. `text`:
    sentences, wrapped at spaces; if there is too little room, they are put below their row, or left out if `drop` is
    not 0. `state`: coloured by its word.
    """

    head: str
    drop: int = 0
    right: bool = False
    wide: bool = False
    text: bool = False
    state: bool = False


def numbers(head: str, drop: int = 0) -> Column:
    """A column of numbers, aligned right and never cut."""
    return Column(head, drop, right=True)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], screen: Screen) -> str:
    """Aligned columns under a dim head, no line wider than the screen unless a single word or a command is. Empty
    columns are left out unless `drop` is 0. If the columns that cannot be dropped are still too wide, the first one
    gets separate lines."""
    cells = [[clean(cell) for cell in row] for row in rows]
    natural = [max(width_of(text) for text in (column.head, *_column(cells, i))) for i, column in enumerate(columns)]
    kept = [i for i, column in enumerate(columns) if _wanted(column, _column(cells, i), screen)]
    below: list[int] = []
    first: int | None = None
    if screen.limit is not None:
        least = _least(columns, cells, natural, LEAST_TEXT)
        kept = _with_room(columns, kept, _least(columns, cells, natural, TEXT), screen.limit)
        kept, below = _fitting(columns, kept, least, screen.limit)
        if len(kept) > 1 and _total(kept, least) > screen.limit:
            first, *kept = kept
    widths = _widths(columns, kept, natural, screen)
    indent = "" if first is None else "  "
    lines = []
    if any(columns[i].head for i in kept):
        if first is not None:
            lines.append(screen(columns[first].head, "dim"))
        lines.append(screen(indent + _line([_pad(columns[i].head, widths[i], columns[i]) for i in kept]), "dim"))
    for row in cells:
        if first is not None:
            lines.append(row[first])
        lines += [indent + line for line in _row(columns, row, kept, widths, screen)]
        lines += [f"{INDENT}{line}" for i in below if row[i] not in NOTHING for line in _below(row[i], screen)]
    return "\n".join(lines)


def _least(columns: Sequence[Column], cells: Sequence[Sequence[str]], natural: Sequence[int], text: int) -> list[int]:
    """The minimum width of each column: for sentences `text`, or their longest word. A command may be wider, because it
    is never broken."""
    longest = [max(map(longest_word, _column(cells, i)), default=0) for i in range(len(columns))]
    return [
        min(width, max(text, word)) if column.text else width
        for column, width, word in zip(columns, natural, longest, strict=True)
    ]


def _widths(columns: Sequence[Column], kept: Sequence[int], natural: Sequence[int], screen: Screen) -> dict[int, int]:
    widths = {i: natural[i] for i in kept}
    if kept and screen.limit is not None and columns[kept[-1]].text:
        room = screen.limit - _total(kept[:-1], natural) - len(GAP) * (len(kept) > 1)
        widths[kept[-1]] = min(natural[kept[-1]], room)
    return widths


def _column(cells: Sequence[Sequence[str]], i: int) -> list[str]:
    return [row[i] for row in cells]


def _wanted(column: Column, content: Sequence[str], screen: Screen) -> bool:
    if column.wide and not screen.wide:
        return False
    return column.drop == 0 or screen.wide or any(cell not in NOTHING for cell in content)


def _with_room(columns: Sequence[Column], wanted: Sequence[int], widths: Sequence[int], limit: int) -> list[int]:
    """The columns, except low-priority columns that do not fit."""
    kept = list(wanted)
    while _total(kept, widths) > limit:
        i = max(kept, key=lambda i: (columns[i].drop, i))
        if columns[i].drop < LITTLE_WEIGHT:
            break
        kept.remove(i)
    return kept


def _fitting(
    columns: Sequence[Column], wanted: Sequence[int], least: Sequence[int], limit: int
) -> tuple[list[int], list[int]]:
    """(the shown columns, the text columns put below their rows)."""
    kept = list(wanted)
    below: list[int] = []
    while _total(kept, least) > limit:
        i = max(kept[1:], key=lambda i: (columns[i].drop, columns[i].text, i), default=-1)
        if i < 0 or not (columns[i].drop or columns[i].text):
            break
        kept.remove(i)
        if columns[i].drop == 0:
            below.insert(0, i)
    return kept, below


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + len(GAP) * max(0, len(kept) - 1)


def _row(
    columns: Sequence[Column], row: Sequence[str], kept: Sequence[int], widths: dict[int, int], screen: Screen
) -> list[str]:
    """A row; the text in its last column continues below itself."""
    rest: list[str] = []
    padded = []
    for i in kept:
        cell = row[i]
        if columns[i].text and i == kept[-1] and screen.limit is not None:
            cell, *rest = folded(cell, widths[i]) or [""]
        text = _pad(cell, widths[i], columns[i])
        padded.append(screen.state(text) if columns[i].state else text)
    start = " " * sum(widths[i] + len(GAP) for i in kept[:-1])
    return [_line(padded), *(start + line for line in rest)]


def _below(text: str, screen: Screen) -> list[str]:
    return folded(text, None if screen.limit is None else screen.limit - len(INDENT))


def _line(padded: Sequence[str]) -> str:
    return GAP.join(padded).rstrip()


def _pad(text: str, width: int, column: Column) -> str:
    space = " " * (width - width_of(text))
    return space + text if column.right else text + space
