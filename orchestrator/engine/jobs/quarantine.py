"""Quarantine: stops a job after an error in handling it, so that its machines cost nothing.

Rows of its runs that cannot be read are repaired from other rows (orchestrator.store.queries.repair); each repair is
an event. Its trainers are asked to save a checkpoint and end. Once they have ended, or STOP_WITHIN_S after the error,
or when the budget is used up or asking fails too, the runs are ended in the store by statements that read none of the
job's data (`Tx.end_runs`), and engine.machines.reap ends their machines. `resume` lifts the quarantine, `cancel` ends
the job.
"""

from __future__ import annotations

from functools import partial

from orchestrator.engine.billing.project_budget import budget_of, project_spending
from orchestrator.engine.billing.spending_limits import spending
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import ACTIVE, Context
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S
from orchestrator.engine.jobs.checkpoints import CheckpointsAwaited, CheckpointUnusable
from orchestrator.errors import SiteError
from orchestrator.model import Run, Step
from orchestrator.store import Quarantined, Tx

STOP_WITHIN_S = 120.0  # wall, since the error: then a trainer that still runs is ended at its last checkpoint
ASK_EVERY_S = 2.0
MEND_EVERY_S = 60.0


def confine(ctx: Context) -> bool:
    """Take every quarantined job one step closer to stopped. Returns whether anything changed."""
    changed = False
    for found in list(ctx.work.quarantined.values()):
        job_id = found.job_id
        urgent = found.state in ACTIVE and job_id in ctx.work.unreadable
        look = urgent or ctx.due(f"mend/{job_id}", MEND_EVERY_S)
        if look and contained(ctx, Compartment.MEND, partial(_mend, ctx, found), False, job_id=job_id):
            changed = True
            continue  # this tick's copy of its runs is out of date
        if _is_stopped(ctx, found):
            continue
        if contained(ctx, Compartment.CONFINE, partial(_wait_for_checkpoint, ctx, found), False, job_id=job_id):
            continue
        if contained(ctx, Compartment.VOID, partial(_void, ctx, found), True, job_id=job_id):
            changed |= contained(ctx, Compartment.END_RUNS, partial(_end_runs, ctx, found), False, job_id=job_id)
    return changed


def lift(tx: Tx, job_id: str) -> str | None:
    """Take a job out of quarantine. Returns why it was quarantined; None if it was not."""
    why = tx.job_facts(job_id).quarantine
    if why is not None:
        tx.set_job_facts(job_id, quarantine=None, quarantined_at_ms=None)
    return why


def _mend(ctx: Context, found: Quarantined) -> bool:
    """Repair unreadable rows of its runs: only readable runs can save a checkpoint and be booked."""
    with ctx.write() as tx:
        mended = tx.repair_runs(found.job_id, ctx.installation.providers)
        for each in mended:
            message = f"{each.run.id} could not be read and was repaired: {'; '.join(each.cells)}"
            ctx.event(tx, "run.mended", message, tx.outline(found.job_id), run=each.run)
    return bool(mended)


def _is_stopped(ctx: Context, found: Quarantined) -> bool:
    """Whether nothing is left to end. A job that finished before the error may have an open migration."""
    moves = any(migration.job_id == found.job_id for migration in ctx.work.migrations)
    lives = any(_lives(run, found.job_id) for run in ctx.work.runs)
    return found.state not in ACTIVE and not lives and not moves


def _wait_for_checkpoint(ctx: Context, found: Quarantined) -> bool:
    """Ask its trainers for a checkpoint. Returns whether one may still come."""
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
    """Whether the budget of the job or of its project is used up. Both apply in quarantine, too."""
    job = ctx.work.jobs.get(job_id)
    if job is None or not ctx.due(f"quarantine-budget/{job_id}", LOOK_EVERY_S):
        return False
    own, whole = job.spec.budget_nano_usd, budget_of(ctx, job.project)
    if own is not None and spending(ctx, job, None).used_up(own):
        return True
    with ctx.installation.store.read() as tx:
        return whole is not None and project_spending(ctx, tx, job.project, whole).used_up(whole)


def _works(ctx: Context, run: Run) -> bool:
    """Whether a run may have unsaved work."""
    if run.instance_id is None or ctx.lost(run):
        return False
    report = ctx.reports.get(run.id)
    if report is None or report.state in ("silent", "malformed"):
        return run.state in ("training", "quiesced")
    return report.state in ("training", "quiesced")


def _void(ctx: Context, found: Quarantined) -> bool:
    """Void an unfinished handover, so that a control plane paused since before the error cannot complete it. False
    while its store has not answered."""
    for migration in ctx.work.migrations:
        if migration.job_id == found.job_id and migration.step is Step.CUTOVER:
            root = ctx.checkpoint_root(ctx.work.jobs[found.job_id])
            try:
                ctx.catalog(f"void/{migration.id}").void(root, found.job_id, migration.generation)
            except CheckpointsAwaited:
                return False
            except CheckpointUnusable:  # then no other process can fence there, either
                continue
    return True


def _end_runs(ctx: Context, found: Quarantined) -> bool:
    """Record that the job holds no machine, with the smallest possible change of the store."""
    cancelled = found.state == "cancelling"
    with ctx.write() as tx:
        tx.end_runs(found.job_id, "cancelled" if cancelled else "paused", ctx.now_ms, f"quarantined: {found.why}")
        if found.state not in ACTIVE:
            return True  # the job had ended; only a repaired run had not
        tx.set_job_state(found.job_id, "cancelled" if cancelled else "paused")
        if cancelled:
            tx.set_job_facts(found.job_id, finished_at_ms=ctx.now_ms, quarantine=None, quarantined_at_ms=None)
        job = tx.outline(found.job_id)
        if cancelled:
            ctx.event(tx, "job.cancelled", "cancelled", job)
        else:
            ctx.event(tx, "job.paused", f"paused: quarantined ({found.why})", job)
    return True
