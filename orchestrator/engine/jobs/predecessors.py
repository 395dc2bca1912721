"""Predecessors: jobs of a group that must have finished before another one starts."""

from __future__ import annotations

from collections import deque
from functools import partial

from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.model import TERMINAL, Job, JobState
from orchestrator.store import Tx

NAMED = 3  # names of predecessors in a message; the others are counted
LOOK_EVERY_S = 2.0
_NOT_STARTED: tuple[JobState, ...] = ("queued", "paused")


def waits_for(tx: Tx, job: Job) -> str | None:
    """A text that names the jobs for which a job still waits; None if all have finished, or if it has none or has
    begun."""
    if not job.after or job.state not in _NOT_STARTED:
        return None
    name_of = {each.id: each.name for each in tx.outlines_of(job.after) if each.state != "finished"}
    open_ones = [name_of[job_id] for job_id in job.after if job_id in name_of]
    if not open_ones:
        return None
    others = f" and {len(open_ones) - NAMED} more" if len(open_ones) > NAMED else ""
    return f"waits until {', '.join(open_ones[:NAMED])}{others} finished"


def lost(tx: Tx, job: Job) -> str | None:
    """Why a queued or paused job can never start: a predecessor failed or was cancelled, or is not in the store. None:
    it can."""
    if not job.after or job.state not in _NOT_STARTED:
        return None
    found = tx.outlines_of(job.after)
    for each in found:
        if each.state in TERMINAL and each.state != "finished":
            return _lost_with(each, each.state)
    return None if len(found) == len(job.after) else "a job that must finish before it is not in the store"


def fail_paused(ctx: Context) -> bool:
    """Fail the paused jobs that can never start; queued ones fail when they are to be placed."""
    if not ctx.due("followers", LOOK_EVERY_S):
        return False
    with ctx.installation.store.read() as tx:
        never = [job for job in tx.paused_followers() if lost(tx, job) is not None]
    return any(
        [
            contained(ctx, Compartment.STOPPING, partial(_fail_paused, ctx, job.id), False, job_id=job.id)
            for job in never
            if job.id not in ctx.work.quarantined
        ]
    )


def _fail_paused(ctx: Context, job_id: str) -> bool:
    with ctx.write() as tx:
        job = tx.job(job_id)
        why = lost(tx, job) if job.state == "paused" else None
        if why is not None:
            fail(ctx, tx, job, why)
    return why is not None


def fail(ctx: Context, tx: Tx, job: Job, why: str) -> None:
    """Fail a job that can never start, and all jobs that directly or indirectly come after it. Does nothing if it has
    already failed with another job since `job` was read."""
    together = tx.outlines_of([job.id] if job.group_id is None else tx.job_ids_of_group(job.group_id))
    followers: dict[str, list[Job]] = {}
    for each in together:
        for before in each.after:
            followers.setdefault(before, []).append(each)
    failed, failing = set[str](), deque((each, why) for each in together if each.id == job.id)
    while failing:
        job, why = failing.popleft()
        if job.id in failed or job.state not in _NOT_STARTED or job.id in ctx.work.quarantined:
            continue
        failed.add(job.id)
        tx.set_job_state(job.id, "failed", expected=_NOT_STARTED)
        tx.set_job_facts(job.id, error=f"not started: {why}", finished_at_ms=ctx.now_ms)
        ctx.event(tx, "job.failed", f"failed: not started: {why}", job)
        failing += [(each, _lost_with(job, "failed")) for each in followers.get(job.id, [])]


def _lost_with(before: Job, state: JobState) -> str:
    ended = "was cancelled" if state == "cancelled" else "failed"
    return f"{before.name} ({before.id}), which must finish before it, {ended}"
