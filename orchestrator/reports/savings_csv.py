"""What jobs paid, saved and would have cost, as CSV: one row per job and baseline.

In every row with a baseline, paid + saved = baseline. The row of a job that is left out has no saving and no baseline
but the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from orchestrator.formats.csv_cells import table
from orchestrator.reports.views import Compared, JobReport
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
    """The CSV text, with a header."""
    return table(COLUMNS, (_cells(row, each) for row in rows for each in row.compared))


def _cells(row: JobReport, each: Compared) -> Sequence[object]:
    amounts = (each.paid_nano_usd, each.saved_nano_usd, each.baseline_nano_usd)
    return (
        row.job.id,
        row.job.name,
        row.job.state,
        each.baseline,
        each.definition,
        "left out" if each.left_out else "provisional" if row.provisional else "final",
        row.version,
        *amounts,
        *(None if amount is None else Decimal(amount) / NANO_USD for amount in amounts),
        each.left_out,
        row.corrected,
        " ".join(each.offer_ids),
        each.speed,
    )
