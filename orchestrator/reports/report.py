"""The report: what jobs cost, for what, and what they would have cost without Tradewind.

Every total is the exact sum of its rows and of the ledger entries. Comparisons with baselines are stored when a job's
books close; only those of jobs with open books are computed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.engine.billing.comparisons import comparisons
from orchestrator.engine.inputs import snapshot
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.ledger import BASELINES, Comparison, job_breakdown
from orchestrator.model import Entry, Job, Migration, Run, trained
from orchestrator.reports import savings
from orchestrator.reports.losses import losses
from orchestrator.reports.periods import not_a_month
from orchestrator.reports.views import JobReport, ReportView, RunCost
from orchestrator.services.jobs.current import JobRecord, job_records, job_views
from orchestrator.services.jobs.forecasts import forecasts
from orchestrator.services.jobs.run_files import metrics_of
from orchestrator.services.views import JobView
from orchestrator.store import Interval, Tx

EVENTS = 200
ENTRIES = 1000
"""The most ledger entries in a report; `entries` streams all of them."""


def report(installation: Installation, ref: str | None = None, month: str | None = None) -> ReportView:
    """The report on one job, on the jobs that ended in a month (`2026-11`, UTC), or on all jobs. Raises NotFoundError;
    UsageError for an invalid month."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        chosen = _chosen(tx, ref, month)
        ids = [job.id for job in chosen]
        records = job_records(installation, tx, chosen)
        kept = tx.comparisons_of(ids, snapshot.left_out)
        prices = _prices(tx, [run for record in records.values() for run in record.runs], now)
        events = tx.events(job_id=None if ref is None else ids[0], limit=EVENTS, newest_first=True)
        views = job_views(installation, tx, chosen, forecasts(installation, tx, chosen), records)
        rows = tuple(
            _row(
                installation,
                tx,
                _Found(job, view, records[job.id], kept[job.id]),
                prices,
                now,
            )
            for job, view in zip(chosen, views, strict=True)
        )
        entries = _last_entries(tx, chosen, records)
    sums = [each for record in records.values() for each in record.booked]
    kinds: Counter[str] = Counter()
    for each in sums:
        kinds[each.kind] += each.amount_nano_usd
    return ReportView(
        at_ms=now,
        simulated=any(row.job.simulated for row in rows),
        clock_factor=installation.clock.factor,
        jobs=rows,
        paid_nano_usd=sum(each.amount_nano_usd for each in sums),
        totals=savings.totals(rows),
        entry_count=sum(each.entries for each in sums),
        kinds=dict(sorted(kinds.items())),
        entries=entries,
        migrations=tuple(sorted((each for record in records.values() for each in record.migrations), key=_order)),
        events=tuple(reversed(events)),
    )


@contextmanager
def entries(installation: Installation, ref: str | None = None, month: str | None = None) -> Iterator[Iterator[Entry]]:
    """The ledger entries of a report, as a stream. Raises NotFoundError, UsageError."""
    with installation.store.read() as tx:
        everything = ref is None and month is None
        yield tx.entries_of(None if everything else [job.id for job in _chosen(tx, ref, month)])


def _chosen(tx: Tx, ref: str | None, month: str | None) -> list[Job]:
    if ref is not None and month is not None:
        raise UsageError("a report covers one job or a month, not both", hint="omit one of them")
    if month is not None:
        return tx.ended_between(*_bounds_ms(month))
    return tx.outlines() if ref is None else [tx.find_job(ref)]


def _bounds_ms(month: str) -> tuple[int, int]:
    """The start and end of a month in epoch ms. Raises UsageError."""
    try:
        begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    except ValueError as error:
        raise not_a_month(month) from error
    end = (begin + timedelta(days=31)).replace(day=1)
    return round(begin.timestamp() * 1000), round(end.timestamp() * 1000)


def _prices(tx: Tx, runs: Sequence[Run], now_ms: int) -> dict[str, tuple[tuple[int, int], ...]]:
    """The prices of each run (by id) while it was billed."""
    billed = [
        (run.id, Interval(run.offer_id, run.billed_from_ms, run.billed_to_ms or now_ms))
        for run in runs
        if run.billed_from_ms is not None
    ]
    found = tx.price_changes_of([interval for _, interval in billed])
    nodes = {run.id: run.nodes for run in runs}
    return {
        run_id: tuple((at_ms, nodes[run_id] * price) for at_ms, price in changes)
        for (run_id, _), changes in zip(billed, found, strict=True)
    }


def _last_entries(tx: Tx, chosen: Sequence[Job], records: Mapping[str, JobRecord]) -> tuple[Entry, ...]:
    """The entries of as many of the latest jobs as have at most ENTRIES in total, job by job."""
    left, ids = ENTRIES, []
    for job in reversed(chosen):
        left -= sum(each.entries for each in records[job.id].booked)
        if left < 0:
            break
        ids.append(job.id)
    return tuple(tx.entries_of(ids))


def _order(migration: Migration) -> tuple[int, int, str]:
    return migration.created_at_ms, migration.generation, migration.id


@dataclass(frozen=True)
class _Found:
    """The stored data of a job; `kept` are its comparisons."""

    job: Job
    view: JobView
    record: JobRecord
    kept: Sequence[Comparison]


def _row(
    installation: Installation,
    tx: Tx,
    of: _Found,
    prices: Mapping[str, tuple[tuple[int, int], ...]],
    now_ms: int,
) -> JobReport:
    view, record, runs = of.view, of.record, of.record.runs
    end_ms = view.finished_at_ms if view.finished_at_ms is not None else now_ms
    duration_s = (end_ms - of.job.submitted_at_ms) / 1000
    reasons = {migration.target_run_id: migration.reason for migration in record.migrations}
    cost: Counter[str] = Counter()
    for each in record.booked:
        cost[each.run_id] += each.amount_nano_usd
    provisional = record.facts.compared_at_ms is None or len(of.kept) < len(BASELINES)
    found = comparisons(installation, tx, of.job, before=of.kept, lenient=True) if provisional else of.kept
    return JobReport(
        job=view,
        runs=tuple(
            RunCost(run, number, reasons.get(run.id, ""), cost[run.id], prices.get(run.id, ()))
            for number, run in enumerate(runs, 1)
        ),
        duration_s=duration_s,
        duration_wall_s=duration_s / installation.clock.factor,
        paid_nano_usd=record.paid_nano_usd,
        provisional=provisional,
        version=None if provisional else found[0].version,
        compared_at_ms=found[0].at_ms,
        corrected=found[0].reason,
        compared=tuple(savings.compared(each, runs) for each in found),
        time_breakdown=job_breakdown(runs, now_ms, factor=installation.clock.factor),
        losses=losses(metrics_of(installation, run) for run in trained(runs)),
    )
