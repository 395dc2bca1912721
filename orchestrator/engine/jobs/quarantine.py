"""Quarantine: a job whose step broke is brought to rest, so that its machines cost nothing, and stays there.

Rows of its runs that cannot be read are mended by what other rows tell (orchestrator.store.queries.mending); each is an
event. Its trainers are asked for a checkpoint and to end. When they have, or STOP_WITHIN_S after it was quarantined, or
when its budget is used up or even asking breaks, its runs are ended in the store by statements that read nothing of it
(`Tx.end_runs`), and engine.machines.reap ends their machines. `resume` lifts the quarantine, `cancel` ends the job.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from orchestrator.engine.billing.spending_limits import LOOK_EVERY_S, spending
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import ACTIVE, Context
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable
from orchestrator.errors import SiteError
from orchestrator.model import Run, Step
from orchestrator.store import Quarantined, Tx

STOP_WITHIN_S = 120.0  # wall, from the fault on: a trainer that has not ended by then ends at its last checkpoint
ASK_EVERY_S = 2.0
MEND_EVERY_S = 60.0


def confine(ctx: Context) -> bool:
    """Bring every quarantined job nearer to rest. Returns whether anything changed."""
    changed = False
    for found in list(ctx.work.quarantined.values()):
        job_id = found.job_id
        pressing = found.state in ACTIVE and job_id in ctx.work.unreadable
        look = pressing or ctx.due(f"mend/{job_id}", MEND_EVERY_S)
        if look and contained(ctx, Compartment.MEND, partial(_mend, ctx, found), False, job_id=job_id):
            changed = True
            continue  # what this tick knows of its runs is out of date
        if _rests(ctx, found):
            continue
        if not contained(ctx, Compartment.CONFINE, partial(_waits, ctx, found), False, job_id=job_id):
            contained(ctx, Compartment.VOID, partial(_void, ctx, found), None, job_id=job_id)
            changed |= contained(ctx, Compartment.END_RUNS, partial(_end_runs, ctx, found), False, job_id=job_id)
    return changed


def lift(tx: Tx, job_id: str) -> str | None:
    """Take a job out of quarantine. Returns what had broken; None if it is in none."""
    why = tx.job_facts(job_id).quarantine
    if why is not None:
        tx.set_job_facts(job_id, quarantine=None, quarantined_at_ms=None)
    return why


def _mend(ctx: Context, found: Quarantined) -> bool:
    """Make rows of its runs whole that cannot be read: only what can be read is asked for a checkpoint, and booked."""
    with ctx.write() as tx:
        mended = tx.mend_runs(found.job_id, ctx.installation.providers)
        for each in mended:
            message = f"{each.run.id} could not be read and was mended: {'; '.join(each.cells)}"
            ctx.event(tx, "run.mended", message, tx.outline(found.job_id), run=each.run)
    return bool(mended)


def _rests(ctx: Context, found: Quarantined) -> bool:
    """Whether nothing of it is left to be ended. A job that finished before its step broke may have an open move."""
    moves = any(migration.job_id == found.job_id for migration in ctx.work.migrations)
    lives = any(_lives(run, found.job_id) for run in ctx.work.runs)
    return found.state not in ACTIVE and not lives and not moves


def _waits(ctx: Context, found: Quarantined) -> bool:
    """Ask for a checkpoint. Whether one may still come."""
    runs = [run for run in ctx.work.runs if _lives(run, found.job_id)]
    busy = [run for run in runs if _works(ctx, run)]
    since_s = (ctx.now_ms - found.at_ms) / 1000 / ctx.installation.clock.factor
    if found.state == "cancelling" or not busy or since_s > STOP_WITHIN_S or _used_up(ctx, found.job_id):
        return False
    for run in busy:
        if ctx.due(f"quarantine-stop/{run.id}", ASK_EVERY_S):
            try:
                ctx.runtime.stop(run.id)
            except SiteError:
                ctx.pacing.pop(f"quarantine-stop/{run.id}")  # asked again by the next tick
    return True


def _lives(run: Run, job_id: str) -> bool:
    return run.job_id == job_id and run.end is None


def _used_up(ctx: Context, job_id: str) -> bool:
    """Whether the job's budget leaves no time to wait: it holds in quarantine, too."""
    job = ctx.work.jobs.get(job_id)
    if job is None or job.spec.budget_nano_usd is None or not ctx.due(f"quarantine-budget/{job_id}", LOOK_EVERY_S):
        return False
    return spending(ctx, job, None).used_up(job.spec.budget_nano_usd)


def _works(ctx: Context, run: Run) -> bool:
    """Whether a run may hold work that it has not saved."""
    if run.instance_id is None or ctx.gone(run):
        return False
    report = ctx.reports.get(run.id)
    if report is None or report.state in ("silent", "malformed"):
        return run.state in ("training", "quiesced")
    return report.state in ("training", "quiesced")


def _void(ctx: Context, found: Quarantined) -> None:
    """A handover that will not be completed: nobody who sleeps since before the fault shall complete it later."""
    for migration in ctx.work.migrations:
        if migration.job_id == found.job_id and migration.step is Step.CUTOVER:
            root = ctx.checkpoint_root(ctx.work.jobs[found.job_id])
            with suppress(CheckpointUnusable):  # then nobody else can fence there either
                ctx.checkpoints.void(root, found.job_id, migration.generation)


def _end_runs(ctx: Context, found: Quarantined) -> bool:
    """From now on it holds no machine: the smallest change of the store that says so."""
    cancelled = found.state == "cancelling"
    with ctx.write() as tx:
        tx.end_runs(found.job_id, "cancelled" if cancelled else "paused", ctx.now_ms, f"quarantined: {found.why}")
        if found.state not in ACTIVE:
            return True  # it was at rest, and a run of it that was mended was not
        tx.set_job_state(found.job_id, "cancelled" if cancelled else "paused")
        if cancelled:
            tx.set_job_facts(found.job_id, finished_at_ms=ctx.now_ms, quarantine=None, quarantined_at_ms=None)
        job = tx.outline(found.job_id)
        if cancelled:
            ctx.event(tx, "job.cancelled", "cancelled; its machines are being ended", job)
        else:
            ctx.event(tx, "job.paused", f"paused at its last checkpoint: quarantined ({found.why})", job)
    return True
