"""client.reports: what jobs cost, and what they would have cost otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.errors import UsageError
from orchestrator.reports import report
from orchestrator.reports.entries_csv import write_entries
from orchestrator.reports.html import page
from orchestrator.reports.views import ReportView


class Reports:
    """In every row and total: paid + saved = baseline."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, job: str | None = None, *, month: str | None = None) -> ReportView:
        """The report of one job, of those that ended in a month (`"2026-11"`, UTC), or of all. Raises NotFoundError,
        UsageError.

        That of a job whose books are open is `provisional`. Once they are closed it never changes, but for what is
        booked later, which makes another `version`.
        """
        return report.report(self._session.installation, job, month)

    def write_entries(self, out: TextIO, job: str | None = None, *, month: str | None = None) -> int:
        """Write the ledger entries of a report as CSV, one after the other, however many there are. Returns their
        number. Raises NotFoundError, UsageError."""
        with report.entries(self._session.installation, job, month) as entries:
            return write_entries(out, entries)

    def write_html(self, view: ReportView, path: str | Path) -> None:
        """Write a report as one self-contained page. Raises UsageError when it cannot be written."""
        try:
            path_of(path).write_text(page(view), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from error
