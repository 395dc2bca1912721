"""Guard: states that a user or a ceiling asked for and that take more than one tick: pausing, cancelling, budgets.

Must not know: where a job runs next.
"""

from __future__ import annotations

from orchestrator.engine import snapshot
from orchestrator.engine.accrue import cost_so_far, reserve_nano_usd
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.place import pause
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run, Step

STOP_EVERY_S = 2.0
BUDGET_EVERY_S = 0.5
BUDGET_RESERVE_WALL_S = 3.0  # a checkpoint and the release of the machine still cost this much time, and a step
PAUSE_TIMEOUT_S = 120.0


def guard(ctx: Context) -> bool:
    """Carry pausing and cancelling jobs to their end and stop jobs before their budget is passed."""
    changed = False
    migrating = {migration.job_id for migration in ctx.work.migrations if migration.step is not Step.RELEASE}
    for job in ctx.work.jobs.values():
        current = snapshot.current_run([run for run in ctx.work.runs if run.job_id == job.id])
        if job.state == "cancelling":
            changed |= _cancelling(ctx, job, current, job.id in migrating)
        elif job.state == "pausing":
            changed |= _pausing(ctx, job, current, job.id in migrating)
        elif job.state in ("starting", "running", "migrating") and (
            job.spec.budget_nano_usd is not None or job.spec.max_duration_s is not None
        ):
            changed |= _ceilings(ctx, job, current)
    return changed


def _cancelling(ctx: Context, job: Job, current: Run | None, migrating: bool) -> bool:
    if migrating:
        return False  # engine.migrate gives it up, or finishes it if it is past its fence
    now = ctx.now_ms
    with ctx.write() as tx:
        if current is not None:
            tx.update_run(current.id, state="ended", end="cancelled", training_to_ms=now)
        tx.set_job_state(job.id, "cancelled")
        tx.set_job_facts(job.id, finished_at_ms=now)
        ctx.event(tx, "job.cancelled", "cancelled; its machine is being ended", job, run=current)
    return True


def _pausing(ctx: Context, job: Job, current: Run | None, migrating: bool) -> bool:
    if migrating:
        return False
    if current is None:
        with ctx.write() as tx:
            tx.set_job_state(job.id, "paused")
            ctx.event(tx, "job.paused", "paused", job)
        return True
    if ctx.due(f"stop/{current.id}", STOP_EVERY_S):
        try:
            ctx.runtime.stop(current.id)
        except SiteError:
            ctx.pacing.pop(f"stop/{current.id}")  # asked again by the next tick
    if ctx.waited_s(f"pausing/{current.id}") > PAUSE_TIMEOUT_S:
        with ctx.write() as tx:  # it cannot reach a step boundary: its last checkpoint must do
            tx.update_run(current.id, state="ended", end="paused", training_to_ms=ctx.now_ms)
            tx.set_job_state(job.id, "paused")
            ctx.event(tx, "job.paused", "paused at its last checkpoint: it did not stop by itself", job, run=current)
        return True
    return False


def _ceilings(ctx: Context, job: Job, current: Run | None) -> bool:
    if not ctx.due(f"budget/{job.id}", BUDGET_EVERY_S):
        return False
    budget, longest = job.spec.budget_nano_usd, job.spec.max_duration_s
    why = None
    if budget is not None:
        with ctx.world.store.read() as tx:
            runs = tx.runs(job_id=job.id)
        spent, rate = cost_so_far(ctx, runs)
        reserve_s = BUDGET_RESERVE_WALL_S + (current.step_wall_s or 0.0 if current is not None else 0.0)
        if spent + reserve_nano_usd(rate, reserve_s * ctx.world.clock.factor) >= budget:
            why = f"${spent / 1e9:.4f} of its budget of ${budget / 1e9:.2f} are spent"
    if longest is not None and (ctx.now_ms - job.submitted_at_ms) / 1000 > longest:
        why = f"it has run for its max_duration of {longest:.0f} s"
    if why is None:
        return False
    with ctx.write() as tx:
        pause(ctx, tx, job, current, why, actor=ACTOR)
    return True
