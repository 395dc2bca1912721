"""Report: what jobs cost, what it was for, and what they would have cost otherwise.

Every total is the exact sum of the rows, and of the ledger's entries. What a job would have cost is read as it was kept
when its books closed, and worked out here only for one whose books are open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from orchestrator.engine.billing.comparisons import comparisons
from orchestrator.engine.inputs import snapshot
from orchestrator.installation import Installation
from orchestrator.ledger import BASELINES, Comparison, TimeBreakdown, time_breakdown, total_nano_usd
from orchestrator.model import Entry, Job, JobForecast, Migration, Run
from orchestrator.reports import savings
from orchestrator.reports.losses import losses
from orchestrator.reports.views import JobReport, ReportView, RunCost
from orchestrator.services.jobs.current import job_view, trained
from orchestrator.services.jobs.forecasts import forecasts
from orchestrator.store import Tx

EVENTS = 200


def report(installation: Installation, ref: str | None = None) -> ReportView:
    """The report of one job (None: of all). Raises NotFoundError."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        chosen = tx.outlines() if ref is None else [tx.find_job(ref)]
        entries = tx.entries() if ref is None else tx.entries(job_id=chosen[0].id)
        job_id = None if ref is None else chosen[0].id
        migrations = tx.migrations(job_id=job_id, unreadable=snapshot.left_out)
        events = tx.events(job_id=job_id, limit=EVENTS, newest_first=True)
        booked: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            booked[entry.job_id].append(entry)
        kept: dict[str, list[Comparison]] = defaultdict(list)
        for each in tx.comparisons(job_id, unreadable=snapshot.left_out):
            kept[each.job_id].append(each)
        said = forecasts(installation, tx, chosen)
        rows = tuple(
            _row(installation, tx, job, kept[job.id], booked[job.id], migrations, now, said[job.id]) for job in chosen
        )
    return ReportView(
        at_ms=now,
        simulated=any(row.job.simulated for row in rows),
        clock_factor=installation.clock.factor,
        jobs=rows,
        paid_nano_usd=total_nano_usd(entries),
        totals=savings.totals(rows),
        entries=tuple(entries),
        migrations=tuple(migrations),
        events=tuple(reversed(events)),
    )


def _row(
    installation: Installation,
    tx: Tx,
    job: Job,
    kept: Sequence[Comparison],
    entries: Sequence[Entry],
    migrations: Sequence[Migration],
    now_ms: int,
    said: JobForecast | str,
) -> JobReport:
    view = job_view(installation, tx, job, said)
    runs = tx.runs(job_id=job.id, unreadable=snapshot.left_out)
    end_ms = view.finished_at_ms if view.finished_at_ms is not None else now_ms
    duration_s = (end_ms - job.submitted_at_ms) / 1000
    reasons = {migration.target_run_id: migration.reason for migration in migrations}
    provisional = tx.job_facts(job.id).compared_at_ms is None or len(kept) < len(BASELINES)
    found = comparisons(installation, tx, job, before=kept, lenient=True) if provisional else kept
    return JobReport(
        job=view,
        runs=tuple(
            _run_cost(tx, run, number, reasons.get(run.id, ""), entries, now_ms) for number, run in enumerate(runs, 1)
        ),
        duration_s=duration_s,
        duration_wall_s=duration_s / installation.clock.factor,
        paid_nano_usd=total_nano_usd(entries),
        provisional=provisional,
        version=None if provisional else found[0].version,
        compared_at_ms=found[0].at_ms,
        corrected=found[0].reason,
        compared=tuple(savings.compared(each, runs) for each in found),
        time_breakdown=sum(
            (time_breakdown(run, now_ms, factor=installation.clock.factor) for run in runs), TimeBreakdown()
        ),
        losses=losses([installation.run_dir(run.id) for run in trained(runs)]),
    )


def _run_cost(tx: Tx, run: Run, number: int, reason: str, entries: Sequence[Entry], now_ms: int) -> RunCost:
    prices: list[tuple[int, int]] = []
    if run.billed_from_ms is not None:
        prices = tx.price_changes(run.offer_id, run.billed_from_ms, run.billed_to_ms or now_ms)
    return RunCost(
        run=run,
        number=number,
        reason=reason,
        cost_nano_usd=sum(entry.amount_nano_usd for entry in entries if entry.run_id == run.id),
        prices=tuple(prices),
    )
