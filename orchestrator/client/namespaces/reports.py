"""client.reports: what jobs cost, and what they would have cost otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.errors import UsageError
from orchestrator.reports import costs, job_list, job_page, overview, report
from orchestrator.reports.costs import CostGroup, CostView, EntryPage
from orchestrator.reports.entries_csv import write_entries
from orchestrator.reports.html import page
from orchestrator.reports.job_list import JobTable
from orchestrator.reports.job_page import JobPage
from orchestrator.reports.overview import Overview
from orchestrator.reports.periods import Period, period_of
from orchestrator.reports.views import ReportView
from orchestrator.store import CostFilter, JobFilter, JobSort


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

    def overview(self, *, month: str | None = None) -> Overview:
        """What was saved, spent and is expected: of the jobs that ended in a month (`"2026-11"`, UTC; None: this one),
        and of those that are open. Raises UsageError."""
        return overview.overview(self._session.installation, period_of(self._now_ms, month=month))

    def costs(
        self,
        group_by: CostGroup = "project",
        *,
        month: str | None = None,
        since: str | None = None,
        until: str | None = None,
        only: CostFilter | None = None,
    ) -> CostView:
        """What was spent in a month (None: this one), or from `since` to `until` (`"30d"`, `"2026-11-21"`), by group,
        next to the period before. `only` narrows the entries. Raises UsageError."""
        return costs.costs(
            self._session.installation, self._period(month=month, since=since, until=until), group_by, only
        )

    def ledger(
        self,
        *,
        month: str | None = None,
        since: str | None = None,
        until: str | None = None,
        only: CostFilter | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> EntryPage:
        """The ledger entries of such a period, newest first. Raises UsageError."""
        period = self._period(month=month, since=since, until=until)
        return costs.entry_page(self._session.installation, period, only, limit=limit, cursor=cursor)

    def jobs(
        self, only: JobFilter | None = None, *, sort: JobSort = "newest", skip: int = 0, limit: int = job_list.ROWS
    ) -> JobTable:
        """A page of the jobs that match, ended ones too. Raises UsageError."""
        return job_list.job_table(self._session.installation, only, sort, skip=skip, limit=limit)

    def job(self, job: str) -> JobPage:
        """One job in full: its report, decisions, events and entries. Raises NotFoundError."""
        return job_page.job_page(self._session.installation, job)

    def projects(self) -> tuple[str, ...]:
        """The projects in the ledger."""
        with self._session.installation.store.read() as tx:
            return tuple(tx.cost_values("project"))

    @property
    def _now_ms(self) -> int:
        return self._session.installation.clock.now_ms()

    def _period(self, *, month: str | None, since: str | None, until: str | None) -> Period:
        return period_of(self._now_ms, month=month, since=since, until=until)

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
