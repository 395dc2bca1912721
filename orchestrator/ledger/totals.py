"""Totals: sums of entries. Corrections are entries like any other: a total is the sum of all rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from orchestrator.model import Entry

Key = Literal["run_id", "job_id", "kind", "basis", "offer_id", "project", "owner"]


def total_nano_usd(entries: Iterable[Entry]) -> int:
    """The sum of all amounts, in nano-USD."""
    return sum(entry.amount_nano_usd for entry in entries)


def totals(entries: Iterable[Entry], by: Key) -> dict[str, int]:
    """nano-USD per value of a field, sorted by value; the parts add up to the total exactly."""
    sums: dict[str, int] = {}
    for entry in entries:
        key = str(getattr(entry, by))
        sums[key] = sums.get(key, 0) + entry.amount_nano_usd
    return dict(sorted(sums.items()))
