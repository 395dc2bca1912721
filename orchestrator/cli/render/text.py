"""Tables, units and colour of the terminal.

Everything that a user, a job or a feed wrote is made harmless here: control characters could rewrite the screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category, east_asian_width

from orchestrator.formats.readable import iso
from orchestrator.model import Estimate
from providers.money import format_usd

SIMULATED = "simulated"
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PAINT = re.compile(f"(\x1b\\[(?:0|{'|'.join(_CODES.values())})m)")  # the only ones that are sent
_STEERING = ("Cc", "Cf", "Zl", "Zp", "Cs")  # controls, formats such as bidi marks, line ends, halves of characters
_STATES = {
    "running": "green",
    "finished": "green",
    "ok": "green",
    "failed": "red",
    "fail": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "warn": "yellow",
    "migrating": "cyan",
    "starting": "cyan",
}


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours text, or does not."""

    on: bool

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.on else text

    def state(self, text: str, state: str | None = None) -> str:
        """A word in the colour of a state; never the only sign of it."""
        style = _STATES.get(state if state is not None else text.strip())
        return self(text, style) if style is not None else text


def clean(text: str) -> str:
    """Without control characters, on one line."""
    return "".join(" " if category(c) in _STEERING else c for c in text)


def clipped(text: str, width: int) -> str:
    """Its beginning where it is longer than `width`, with dots that say so."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def visible(text: str) -> str:
    """Control characters as escapes (`\\x1b`, `\\u202e`), on one line: what a terminal would obey is seen instead."""
    return text if text.isprintable() else "".join(map(_seen, text))


def shown(text: str) -> str:
    """The same for text of several lines that may be painted; the last look at all that is written for people."""
    if text.isprintable():
        return text
    parts = _PAINT.split(text)
    return "".join(part if index % 2 else "".join(map(_seen_of_many, part)) for index, part in enumerate(parts))


def _seen(character: str) -> str:
    if character == "\t" or category(character) not in _STEERING:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _seen_of_many(character: str) -> str:
    return character if character == "\n" else _seen(character)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint, *, right: Sequence[int] = (), state: int = -1
) -> str:
    """Aligned columns under a dim head; `right` are columns of numbers, `state` is coloured by its word."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(_width(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    if len(head) - 1 not in right:
        widths[-1] = 0  # nothing follows that would have to be aligned
    lines = []
    if any(head):
        lines.append(paint("  ".join(_pad(h, widths[i], i in right) for i, h in enumerate(head)).rstrip(), "dim"))
    for row in cells:
        padded = [_pad(cell, widths[i], i in right) for i, cell in enumerate(row)]
        if state >= 0:
            padded[state] = paint.state(padded[state])
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(2 if east_asian_width(c) in "WF" else 0 if category(c) == "Mn" else 1 for c in text)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def money(nano_usd: int | None, places: int = 2) -> str:
    return "-" if nano_usd is None else format_usd(nano_usd, places)


def rate(nano_usd_per_hour: int | None) -> str:
    """`$1.2100/h`."""
    return "-" if nano_usd_per_hour is None else f"{format_usd(nano_usd_per_hour, 4)}/h"


def span(seconds: float | None) -> str:
    """`38 s`, `12 min`, `18.4 h`, `3.2 d`."""
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def instant(at_ms: int | None) -> str:
    """`2026-11-21 10:03:26 UTC`."""
    return "-" if at_ms is None else f"{iso(at_ms)[:19].replace('T', ' ')} UTC"


def moment(at_ms: int) -> str:
    """`11-21 10:03:26`, for columns."""
    return iso(at_ms)[5:19].replace("T", " ")


def number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


HOW_TO_KNOW = "tradewind profile FILE measures a step here; `expected:` in the job file says what you know"
"""How to get from ratios to a forecast."""


def ratio(value: Estimate | None) -> str:
    """`0.42 x A100-80GB`: a speed beside that of a fixed machine."""
    return "-" if value is None else f"{value.value:.2g} x {value.provenance}"


def progress(step: int, total: int | None) -> str:
    """`1200/20000 (6%)`."""
    if not total:
        return str(step)
    return f"{step}/{total} ({min(step / total, 1):.0%})"


def note_simulated(simulated: bool, what: str = "prices and costs") -> str:
    return f"{what} are {SIMULATED}: a market on this machine, no real money" if simulated else ""


def blocks(*parts: str) -> str:
    """Parts under each other; empty ones are left out."""
    return "\n".join(part for part in parts if part)
