"""Pausing: sets a job to `pausing`, then to `paused`, and records the reason both times. A job that only gives way to
others on shared machines passes through the same states, and is then queued again."""

from __future__ import annotations

from typing import Any

from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.jobs.stopped_at import stopped_at
from orchestrator.engine.migration.intent import under_way
from orchestrator.model import Event, Job, Run
from orchestrator.store import Tx


def pause(
    ctx: Context, tx: Tx, job: Job, current: Run | None, why: str, *, actor: str, left_root: str | None = None
) -> None:
    """Start pausing: engine.jobs.stopping lets the run save a checkpoint and end; open migrations are aborted.
    `left_root`: the former `store_root` for which it is paused (engine.jobs.left_behind)."""
    tx.set_job_state(job.id, "pausing")
    left: dict[str, Any] = {} if left_root is None else {"left_root": left_root}
    ctx.event(tx, "job.pausing", f"pausing: {why}", job, run=current, actor=actor, why=why, **left)
    if current is None and not under_way(tx, job.id):
        paused(ctx, tx, job, None, stopped_at(tx, job))


def give_way(ctx: Context, tx: Tx, job: Job, current: Run, why: str) -> None:
    """Start pausing until the job's next turn: at its checkpoint it is queued again."""
    tx.set_job_state(job.id, "pausing")
    ctx.event(tx, "job.pausing", f"gives way: {why}", job, run=current, actor=ACTOR, why=why, turn=True)


def gives_way(tx: Tx, job: Job) -> bool:
    """Whether a pausing job only gives way to others."""
    reported = _reported(tx, job)
    return reported is not None and reported.data.get("turn") is True


def paused_for_root(tx: Tx, job: Job) -> str | None:
    """The former `store_root` for which a job was paused last; None if its last pause had another reason."""
    reported = _reported(tx, job)
    root = None if reported is None else reported.data.get("left_root")
    return None if root is None else str(root)


def halted(tx: Tx, job: Job) -> bool:
    """Whether a job is paused or pausing, and not only until its next turn."""
    return job.state == "paused" or (job.state == "pausing" and not gives_way(tx, job))


def paused(ctx: Context, tx: Tx, job: Job, run: Run | None, how: str, *, why: str | None = None) -> None:
    """Record that the job no longer holds a machine, and the command that continues it, if the reason names none.
    `why` defaults to the reason for which pausing began."""
    if why is None and gives_way(tx, job):
        tx.set_job_state(job.id, "queued")
        tx.set_job_facts(job.id, next_decision_ms=None)
        ctx.event(
            tx, "job.gave_way", f"gave way {how}, and waits for its next turn: {_requested(tx, job)}", job, run=run
        )
        return
    tx.set_job_state(job.id, "paused")
    because = why or _requested(tx, job)
    if "tradewind resume " not in because:
        because += to_continue(tx.typed_name(job.id, job.name))
    ctx.event(tx, "job.paused", f"paused {how}: {because}", job, run=run)


def to_continue(typed_name: str) -> str:
    """The text that names the command with which a paused job continues; begins with a semicolon."""
    return f"; to continue: tradewind resume {typed_name}"


def _requested(tx: Tx, job: Job) -> str:
    reported = _reported(tx, job)
    return "on request" if reported is None else str(reported.data.get("why") or "on request")


def _reported(tx: Tx, job: Job) -> Event | None:
    return next(iter(tx.events(job_id=job.id, kinds=("job.pausing",), limit=1, newest_first=True)), None)
