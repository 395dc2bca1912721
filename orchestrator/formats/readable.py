"""Times, durations, numbers and names for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which calendars have no dates."""
YEAR_S = 365.25 * 86_400.0
"""Durations of two years and more are shown in years."""


_YEAR_FIRST = re.compile(r"(?P<year>\d{4})[-/. ]?(?P<month>\d{1,2})(?:[-/. ]?(?P<day>\d{1,2}))?", re.ASCII)
_YEAR_LAST = re.compile(r"(?P<month>\d{1,2})[-/. ](?P<year>\d{4})", re.ASCII)


def iso(at_ms: int) -> str:
    """Epoch ms as UTC: `2026-11-21T10:03:26.882Z`; later times are shown as LAST_MS."""
    at_ms = min(at_ms, LAST_MS)
    instant = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def day_meant(text: str) -> date | None:
    """The day, or first day of a month, that a date in another form means: `2026-1`, `2026/01/31`, `1/2026`."""
    found = _YEAR_FIRST.fullmatch(text.strip()) or _YEAR_LAST.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return date(int(found["year"]), int(found["month"]), int(found.groupdict().get("day") or 1))
    except ValueError:
        return None


def significant(value: float, digits: int) -> str:
    """A finite number with `digits` significant digits, without trailing zeros and without an exponent."""
    return f"{Decimal(f'{value:.{digits}g}'):f}".removeprefix("-" if value == 0 else "")


def span(seconds: float) -> str:
    """A duration in a suitable unit: `38 s`, `72 min`, `18.4 h`, `2 days`, `3.2 days`, `444 days`, `6.9 years`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86_400:
        return f"{seconds / 3600:.1f} h"
    if seconds < 2 * YEAR_S:
        days = seconds / 86_400
        return f"{days:.0f} days" if days >= 10 else f"{days:.1f}".removesuffix(".0") + " days"
    return f"{seconds / YEAR_S:,.1f} years"


def some_of(names: Sequence[str], most: int) -> str:
    """The names; if there are at least two more than `most`, the first ones and how many more there are."""
    more = len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more} more"


def unique_labels(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A label for each (id, name), by id: its name, followed by its id if others have the same name."""
    names = dict(named)
    count = Counter(names.values())
    return {id_: name if count[name] == 1 else f"{name} {id_}" for id_, name in names.items()}
