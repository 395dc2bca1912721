"""Ledger entries as CSV, one row each, amounts in integer nano-USD and in dollars. Must not know: reports."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from decimal import Decimal

from orchestrator.model import Entry
from orchestrator.services.csv_cells import cell
from orchestrator.services.readable import iso
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
    """Header and rows. No cell is run as a formula by a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in entries:
        writer.writerow(
            [
                cell(entry.id),
                cell(entry.job_id),
                cell(entry.run_id),
                iso(entry.period_start_ms),
                iso(entry.period_end_ms),
                entry.kind,
                entry.basis,
                cell(entry.offer_id),
                entry.amount_nano_usd,
                Decimal(entry.amount_nano_usd) / NANO_USD,
                cell(entry.reverses or ""),
                cell(entry.project),
                cell(entry.owner),
                cell(label_of(entry.labels)),
            ]
        )
    return text.getvalue()
