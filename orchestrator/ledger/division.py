"""Division: what part of a ledger entry falls into a period, or on each UTC day. Pure.

An amount is divided in proportion to time: up to an instant it is the amount times the part of the period that has
passed, rounded towards zero, and a part is the difference of two of these. So the parts of adjacent periods add up to
the entry exactly, the last one gets what rounding leaves, and a correction that takes an entry back takes it back on
each day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DAY_MS = 86_400_000
"""A UTC day: days are those since 1970-01-01."""


class DayPart(NamedTuple):
    """The part of an entry on a UTC day (its number since 1970-01-01): nano-USD and ms."""

    day: int
    amount_nano_usd: int
    time_ms: int


def by_day(
    start_ms: int, end_ms: int, amount_nano_usd: int, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[DayPart]:
    """The parts of an entry for [`start_ms`, `end_ms`) within [`since_ms`, `until_ms`), day by day. One that has no
    duration is on the day of its `start_ms`, whole."""
    if end_ms <= start_ms:
        if (since_ms is None or since_ms <= start_ms) and (until_ms is None or start_ms < until_ms):
            yield DayPart(start_ms // DAY_MS, amount_nano_usd, 0)
        return
    at_ms = start_ms if since_ms is None else max(start_ms, since_ms)
    last_ms = end_ms if until_ms is None else min(end_ms, until_ms)
    while at_ms < last_ms:
        day = at_ms // DAY_MS
        to_ms = min(last_ms, (day + 1) * DAY_MS)
        amount = _up_to(to_ms, start_ms, end_ms, amount_nano_usd) - _up_to(at_ms, start_ms, end_ms, amount_nano_usd)
        yield DayPart(day, amount, to_ms - at_ms)
        at_ms = to_ms


def _up_to(at_ms: int, start_ms: int, end_ms: int, amount_nano_usd: int) -> int:
    share = abs(amount_nano_usd) * (at_ms - start_ms) // (end_ms - start_ms)
    return share if amount_nano_usd >= 0 else -share
