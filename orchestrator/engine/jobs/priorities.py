"""Priorities: the order of queued jobs, by the priorities of their projects.

A tick decides about a few jobs only (engine.migration.turns). Waiting jobs of a higher priority are decided together
with a job, so that it cannot take the room that they wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.engine.context import Context
from orchestrator.engine.inputs.snapshot import idle_s
from orchestrator.model import Job
from orchestrator.policy.projects import STARVED_S, priority_of
from orchestrator.store import Tx

MOST = 8
"""The most jobs of higher priority that are decided together with others, so that no tick takes long."""


def priorities(ctx: Context, tx: Tx, jobs: Collection[Job]) -> Mapping[str, int]:
    """The effective priority of each of these jobs, by job id."""
    projects = ctx.installation.config.projects
    highest, now_ms = projects.highest_priority, ctx.now_ms
    own = {job.id: projects.of(job.project).priority for job in jobs}
    old = [job for job in jobs if own[job.id] < highest and now_ms - job.submitted_at_ms > STARVED_S * 1000]
    idle = idle_s(tx, old, now_ms) if old else {}
    return {job_id: priority_of(priority, highest, idle.get(job_id, 0.0)) for job_id, priority in own.items()}


def in_order(ctx: Context, tx: Tx, jobs: Collection[Job]) -> Sequence[Job]:
    """The jobs by priority, and then by time of submission and id."""
    rank = priorities(ctx, tx, jobs)
    return sorted(jobs, key=lambda job: (-rank[job.id], job.submitted_at_ms, job.id))


def ahead(ctx: Context, tx: Tx, chosen: Collection[Job]) -> Sequence[Job]:
    """The queued jobs that come before one of the `chosen`, at most MOST."""
    projects = ctx.installation.config.projects
    if not chosen or not any(each.priority for each in projects.tables.values()):
        return ()
    lowest, ids = min(priorities(ctx, tx, chosen).values()), {job.id for job in chosen}
    queued = [job for job in ctx.work.jobs.values() if job.state == "queued" and job.id not in ids]
    queued = [job for job in queued if job.id not in ctx.work.quarantined]
    queued.sort(key=lambda job: (-projects.of(job.project).priority, job.submitted_at_ms, job.id))
    oldest = sorted(queued, key=lambda job: (job.submitted_at_ms, job.id))[:MOST]  # they may have waited too long
    wanted = {job.id: job for job in (*queued[:MOST], *oldest)}.values()
    rank = priorities(ctx, tx, wanted)
    return [job for job in in_order(ctx, tx, wanted) if rank[job.id] > lowest][:MOST]
