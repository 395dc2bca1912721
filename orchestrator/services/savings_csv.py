"""What jobs paid, saved and would have cost, as CSV: one row per job and baseline.

In every row with a baseline paid + saved = baseline; one of a job that is left out says why, and has neither. Must not
know: how it was worked out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from decimal import Decimal

from orchestrator.services.csv_cells import cell
from orchestrator.services.report_views import JobReport
from providers.money import NANO_USD

AMOUNTS = ("paid", "saved", "baseline")
COLUMNS = (
    "job_id",
    "name",
    "state",
    "against",
    "definition",
    "standing",
    "version",
    *(f"{name}_nano_usd" for name in AMOUNTS),
    *(f"{name}_usd" for name in AMOUNTS),
    "left_out",
    "corrected",
    "machines",
    "speed",
)


def savings_csv(rows: Iterable[JobReport]) -> str:
    """Header and rows. No cell is run as a formula by a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        for each in row.compared:
            amounts = (each.paid_nano_usd, each.saved_nano_usd, each.baseline_nano_usd)
            standing = "left out" if each.left_out else "provisional" if row.provisional else "final"
            writer.writerow(
                [
                    cell(row.job.id),
                    cell(row.job.name),
                    row.job.state,
                    each.baseline,
                    each.definition,
                    standing,
                    "" if row.version is None else row.version,
                    *("" if amount is None else amount for amount in amounts),
                    *("" if amount is None else Decimal(amount) / NANO_USD for amount in amounts),
                    cell(each.left_out),
                    cell(row.corrected),
                    cell(" ".join(each.offer_ids)),
                    cell(each.speed),
                ]
            )
    return text.getvalue()
