"""Pausing: sets a job to `pausing`, then to `paused`, and records the reason both times."""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.migration.intent import under_way
from orchestrator.model import Job, Run
from orchestrator.store import Tx


def pause(ctx: Context, tx: Tx, job: Job, current: Run | None, why: str, *, actor: str) -> None:
    """Start pausing: engine.jobs.stopping lets the run save a checkpoint and end; open migrations are aborted."""
    tx.set_job_state(job.id, "pausing")
    ctx.event(tx, "job.pausing", f"pausing: {why}", job, run=current, actor=actor, why=why)
    if current is None and not under_way(tx, job.id):
        paused(ctx, tx, job, None, "before it ran" if not tx.runs(job_id=job.id) else "where it was")


def paused(ctx: Context, tx: Tx, job: Job, run: Run | None, how: str, *, why: str | None = None) -> None:
    """Record that the job holds no machine any more. `why` defaults to the reason for which pausing began."""
    tx.set_job_state(job.id, "paused")
    ctx.event(tx, "job.paused", f"paused {how}: {why or _requested(tx, job)}", job, run=run)


def _requested(tx: Tx, job: Job) -> str:
    reported = tx.events(job_id=job.id, kinds=("job.pausing",), limit=1, newest_first=True)
    return str(reported[0].data.get("why") or "on request") if reported else "on request"
