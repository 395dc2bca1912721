"""Report: what jobs cost, what it was for, and what they would have cost on the on-demand instance all along.

Every total is the exact sum of the rows, and of the ledger's entries. Must not know: how entries come to be.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine import snapshot
from orchestrator.engine.world import World
from orchestrator.ledger import Duty, counterfactual, duty, total_nano_usd
from orchestrator.model import TERMINAL, Entry, Job, Migration, Run
from orchestrator.services.jobs import job_view, trained
from orchestrator.services.losses import losses
from orchestrator.services.views import JobReport, JobView, ReportView, RunCost
from orchestrator.store import Tx
from providers.money import format_usd

EVENTS = 200


def report(world: World, ref: str | None = None) -> ReportView:
    """The report of one job (None: of all). Raises NotFoundError."""
    now = world.clock.now_ms()
    with world.store.read() as tx:
        chosen = tx.outlines() if ref is None else [tx.find_job(ref)]
        entries = tx.entries() if ref is None else tx.entries(job_id=chosen[0].id)
        job_id = None if ref is None else chosen[0].id
        migrations = tx.migrations(job_id=job_id, unreadable=snapshot.left_out)
        events = tx.events(job_id=job_id, limit=EVENTS, newest_first=True)
        rows = tuple(_row(world, tx, job, entries, migrations, now) for job in chosen)
    known = [row for row in rows if row.baseline_nano_usd is not None]
    return ReportView(
        at_ms=now,
        simulated=any(row.job.simulated for row in rows),
        clock_factor=world.clock.factor,
        jobs=rows,
        paid_nano_usd=total_nano_usd(entries),
        baseline_nano_usd=sum(row.baseline_nano_usd or 0 for row in known) if known else None,
        saving_nano_usd=sum(row.saving_nano_usd or 0 for row in known) if known else None,
        entries=tuple(entries),
        migrations=tuple(migrations),
        events=tuple(reversed(events)),
    )


def _row(
    world: World, tx: Tx, job: Job, entries: Sequence[Entry], migrations: Sequence[Migration], now_ms: int
) -> JobReport:
    view = job_view(world, tx, job)
    own = [entry for entry in entries if entry.job_id == job.id]
    runs = tx.runs(job_id=job.id, unreadable=snapshot.left_out)
    end_ms = view.finished_at_ms if view.finished_at_ms is not None else now_ms
    baseline_id, baseline = _baseline(tx, job, view, now_ms)
    paid = total_nano_usd(own)
    duration_s = (end_ms - job.submitted_at_ms) / 1000
    reasons = {migration.target_run_id: migration.reason for migration in migrations}
    return JobReport(
        job=view,
        runs=tuple(
            _run_cost(tx, run, number, reasons.get(run.id, ""), own, now_ms) for number, run in enumerate(runs, 1)
        ),
        duration_s=duration_s,
        duration_wall_s=duration_s / world.clock.factor,
        paid_nano_usd=paid,
        baseline_offer_id=baseline_id,
        baseline_nano_usd=baseline,
        saving_nano_usd=None if baseline is None else baseline - paid,
        verdict=_verdict(view, paid, baseline),
        duty=sum((duty(run, now_ms, factor=world.clock.factor) for run in runs), Duty()),
        losses=losses([world.run_dir(run.id) for run in trained(runs)]),
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


def _baseline(tx: Tx, job: Job, view: JobView, now_ms: int) -> tuple[str | None, int | None]:
    """The on-demand offer that the job was compared with when it was placed, and the cost of staying there.

    None while no step was measured, since a guess at the speed would be no figure to compare with, and where the price
    in force when the job was submitted is not known.
    """
    offer_id = tx.job_facts(job.id).baseline_offer_id
    offer = next((offer for offer in tx.offers() if offer.id == offer_id), None)
    measured = any(point.job_id == job.id for point in tx.perf([job.id]))
    if offer is None or view.step == 0 or not measured:
        return offer_id, None
    speed = snapshot.perf(tx, now_ms).estimate(job, offer).value
    changes = tx.price_changes(offer.id, job.submitted_at_ms, now_ms)
    if not changes or changes[0][0] > job.submitted_at_ms:
        return offer_id, None
    stayed = counterfactual(
        changes,
        job.submitted_at_ms,
        steps=view.step,
        steps_per_s=speed,
        startup_s=_startup_s(tx.runs(job_id=job.id, unreadable=snapshot.left_out)),
    )
    return offer.id, stayed.cost_nano_usd


def _startup_s(runs: Sequence[Run]) -> float:
    """Billed market seconds before the first step: one start-up has to be paid wherever a job runs."""
    first = next((run for run in runs if run.training_from_ms is not None and run.billed_from_ms is not None), None)
    if first is None or first.training_from_ms is None or first.billed_from_ms is None:
        return 0.0
    return max(0, first.training_from_ms - first.billed_from_ms) / 1000


def _verdict(view: JobView, paid: int, baseline: int | None) -> str:
    """In words, and as honest when moving gained nothing."""
    if baseline is None:
        return "no comparison: no step of it was measured, or no on-demand price was known"
    so_far = "" if view.state in TERMINAL else " so far"
    if paid < baseline:
        return f"saved {format_usd(baseline - paid)} ({1 - paid / baseline:.0%}) against on-demand{so_far}"
    moved = "moving gained nothing" if view.moves else "spot gained nothing"
    return f"{moved}: {format_usd(paid - baseline)} more than on-demand{so_far}"
