"""Ledger entries as CSV: one row per entry, amounts in integer nano-USD and in dollars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TextIO

from orchestrator.formats.csv_cells import table, write_table
from orchestrator.formats.readable import iso
from orchestrator.model import Entry
from orchestrator.services.views import label_of
from providers.money import NANO_USD

COLUMNS = (
    "id",
    "job_id",
    "run_id",
    "period_start",
    "period_end",
    "kind",
    "basis",
    "offer_id",
    "amount_nano_usd",
    "amount_usd",
    "reverses",
    "project",
    "owner",
    "labels",
)


def entries_csv(entries: Iterable[Entry]) -> str:
    """The CSV text, with a header."""
    return table(COLUMNS, map(_row, entries))


def write_entries(out: TextIO, entries: Iterable[Entry]) -> int:
    """As `entries_csv`, row by row. Returns the number of entries."""
    return write_table(out, COLUMNS, map(_row, entries))


def _row(entry: Entry) -> Sequence[object]:
    return (
        entry.id,
        entry.job_id,
        entry.run_id,
        iso(entry.period_start_ms),
        iso(entry.period_end_ms),
        entry.kind,
        entry.basis,
        entry.offer_id,
        entry.amount_nano_usd,
        Decimal(entry.amount_nano_usd) / NANO_USD,
        entry.reverses,
        entry.project,
        entry.owner,
        label_of(entry.labels),
    )
