"""client.reports: what jobs cost, and what they would have cost without Tradewind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.errors import UsageError
from orchestrator.formats.whole_file import write_whole
from orchestrator.reports import (
    backtests,
    costs,
    decisions,
    frontier,
    health,
    job_list,
    job_page,
    market,
    moves,
    overview,
    report,
)
from orchestrator.reports.backtests import BacktestList
from orchestrator.reports.costs import CostGroup, CostView, EntryPage
from orchestrator.reports.decisions import PlanInForce
from orchestrator.reports.entries_csv import write_entries
from orchestrator.reports.frontier import FrontierView
from orchestrator.reports.health import Health
from orchestrator.reports.html import page
from orchestrator.reports.job_list import JobTable
from orchestrator.reports.job_page import JobPage
from orchestrator.reports.market import MarketView, Unit
from orchestrator.reports.moves import MoveList
from orchestrator.reports.overview import Overview
from orchestrator.reports.periods import Period, period_of
from orchestrator.reports.views import ReportView
from orchestrator.store import CostFilter, JobFilter, JobSort


@checked
class Reports:
    """In every row, and in the total of the compared rows: paid + saved = baseline."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, job: str | None = None, *, month: str | None = None) -> ReportView:
        """The report of one job, of the jobs that ended in a month (`"2026-11"`, UTC), or of all jobs. Raises
        NotFoundError, UsageError.

        The report of a job whose books are open is `provisional`. After the books are closed, only later entries change
        it, and make a new `version`.
        """
        return report.report(self._session.installation, job, month)

    def overview(self, *, month: str | None = None) -> Overview:
        """Savings, spending and expected costs of the jobs that ended in a month (`"2026-11"`, UTC; None: this month),
        and of the open jobs. Raises UsageError."""
        return overview.overview(self._session.installation, period_of(self.now_ms, month=month))

    def costs(
        self,
        group_by: CostGroup = "project",
        *,
        month: str | None = None,
        since: str | None = None,
        until: str | None = None,
        only: CostFilter | None = None,
        every: bool = False,
    ) -> CostView:
        """Spending in a month (None: this month), or from `since` (None: 30 days before `until`) to `until` (None: now;
        times like `"30d"`, `"2026-11-21"`), by group, beside the previous period: the 500 largest groups, or with
        `every` all of them. `only` filters the entries. Entries that span midnight (UTC), or an end of the period, are
        divided there in proportion to time. Raises UsageError."""
        period = self._period(month=month, since=since, until=until)
        return costs.costs(self._session.installation, period, group_by, only, every=every)

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
        """The ledger entries of a period (without one: all), the newest first, and the sum of their parts in the
        period. Raises UsageError."""
        given = month is not None or since is not None or until is not None
        period = self._period(month=month, since=since, until=until) if given else None
        return costs.entry_page(self._session.installation, period, only, limit=limit, cursor=cursor)

    def jobs(
        self,
        only: JobFilter | None = None,
        *,
        sort: JobSort = "newest",
        skip: int = 0,
        limit: int | None = job_list.ROWS,
    ) -> JobTable:
        """A page of the matching jobs, including ended jobs; with `limit` None, all of them. Raises UsageError."""
        return job_list.job_table(self._session.installation, only, sort, skip=skip, limit=limit)

    def job(self, job: str) -> JobPage:
        """One job in full: its report, decisions, events and entries. Raises NotFoundError."""
        return job_page.job_page(self._session.installation, job)

    def frontier(self, job: str | None = None, *, cloud: str | None = None, spot: bool | None = None) -> FrontierView:
        """The cheapest offer of each kind of machine now, and which of them no other offer beats in both price and
        speed (of a job, or of the machine). Raises NotFoundError."""
        return frontier.frontier(self._session.installation, job, cloud=cloud, spot=spot)

    def market(
        self,
        gpu: str | None = None,
        *,
        unit: Unit = "gpu",
        job: str | None = None,
        cloud: str | None = None,
        spot: bool | None = None,
        offers: Sequence[str] = (),
        since: str | None = None,
        until: str | None = None,
        every: bool = False,
    ) -> MarketView:
        """The market of a kind of GPU (None: the one with the most offers): current prices, and those from `since`
        (None: 30 days before `until`) to `until` (None: now), per GPU and hour, per TFLOP or per 1,000 steps of a job.
        It lists the first 60 offers, or with `every` all of them. Raises NotFoundError, UsageError."""
        return market.market(
            self._session.installation,
            gpu,
            unit=unit,
            job=job,
            cloud=cloud,
            spot=spot,
            offers=offers,
            since=since,
            until=until,
            every=every,
        )

    def moves(
        self, job: str | None = None, *, since: str = "7d", before: str | None = None, every: bool = False
    ) -> MoveList:
        """The latest 50 moves of a job (None: of all jobs), or with `every` all since then: why, how long they took,
        and what they saved. Raises NotFoundError, UsageError."""
        return moves.moves(self._session.installation, job=job, since=since, before=before, every=every)

    def plan_in_force(self, *, every: bool = False) -> PlanInForce:
        """The latest decision about each of the 200 newest open jobs, or with `every` about each open job, and the
        decision before it."""
        return decisions.plan_in_force(self._session.installation, every=every)

    def backtests(self) -> BacktestList:
        """The saved back-tests."""
        return backtests.backtests(self._session.installation)

    def health(self) -> Health:
        """The state of the control plane, price sources, flagged prices, quarantined jobs and machines."""
        return health.health(self._session.installation)

    def mark(self) -> str:
        """A text that changes if anything on the pages may have changed: an event, an entry or a price."""
        with self._session.installation.store.read() as tx:
            newest = tx.events(limit=1, newest_first=True)
            booked, known = tx.total_nano_usd(), tx.market_changes()
        return f"{newest[0].id if newest else ''} {booked} {known}"

    def clouds(self) -> tuple[str, ...]:
        """The providers that list offers."""
        with self._session.installation.store.read() as tx:
            return tuple(sorted({each.provider for each in tx.poll_states()}))

    def projects(self) -> tuple[str, ...]:
        """The projects in the ledger."""
        with self._session.installation.store.read() as tx:
            return tuple(tx.cost_values("project"))

    def kinds(self) -> tuple[str, ...]:
        """The kinds of entries in the ledger."""
        with self._session.installation.store.read() as tx:
            return tuple(tx.cost_values("kind"))

    def names(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """The names of jobs by id; unknown ids are left out."""
        with self._session.installation.store.read() as tx:
            return {each.id: each.name for each in tx.outlines_of(set(job_ids))}

    @property
    def now_ms(self) -> int:
        """Market time, in epoch ms."""
        return self._session.installation.clock.now_ms()

    @property
    def simulated(self) -> bool:
        """Whether an enabled provider is simulated."""
        return self._session.installation.simulated

    def _period(self, *, month: str | None, since: str | None, until: str | None) -> Period:
        return period_of(self.now_ms, month=month, since=since, until=until)

    def write_entries(self, out: TextIO, job: str | None = None, *, month: str | None = None) -> int:
        """Write all ledger entries of a report as CSV, one at a time. Returns their number. Raises NotFoundError,
        UsageError."""
        with report.entries(self._session.installation, job, month) as entries:
            return write_entries(out, entries)

    def write_html(self, view: ReportView, path: str | Path) -> None:
        """Write a report as one self-contained HTML page. Raises UsageError if it cannot be written."""
        try:
            write_whole(path_of(path), page(view))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from error
