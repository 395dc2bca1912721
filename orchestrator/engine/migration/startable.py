"""Startable: which jobs can start now. Placement uses this, and so do turns on shared machines (engine.jobs): a job
gives way only to a job that can start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.engine.context import Context
from orchestrator.engine.jobs import predecessors
from orchestrator.engine.jobs.pausing import halted
from orchestrator.engine.migration import wasted
from orchestrator.engine.migration.intent import may_change_place
from orchestrator.engine.migration.move import MAX_PAUSE_S
from orchestrator.model import Job, Migration
from orchestrator.store import JobFacts, Tx

WAIT_EVERY_WALL_S = 2.0
"""A waiting job is considered again this often."""
_LONGEST_PAUSE_WALL_S = max(MAX_PAUSE_S, wasted.LONGEST_BACK_OFF_S)
"""The longest pause before a decision. A pause that ends later was started by a clock that has been set back since."""


def may_be_placed(ctx: Context, job: Job, facts: JobFacts, moves: Sequence[Migration]) -> bool:
    """Whether a job waits for a place and may be considered, or runs without an open migration."""
    if job.state not in ("queued", "running") or may_change_place(moves):
        return False
    return job.state == "running" or not _pauses(ctx, facts)


def able_to_share(ctx: Context, tx: Tx, jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs among these that take turns: they have a machine or could start now, and could continue after giving
    way. A waiting job must lack nothing but a machine."""
    waiting = [job_id for job_id, job in jobs.items() if job.state == "queued"]
    facts = tx.job_facts_of(waiting)
    return {
        job_id: job
        for job_id, job in jobs.items()
        if ctx.secrets.missing(job) is None
        and not halted(tx, job)
        and (job_id not in facts or not _pauses(ctx, facts[job_id], WAIT_EVERY_WALL_S))
        and predecessors.waits_for(tx, job) is None
    }


def _pauses(ctx: Context, facts: JobFacts, longer_than_wall_s: float = 0.0) -> bool:
    """Whether the next decision about a waiting job is due only after this time."""
    if facts.next_decision_ms is None:
        return False
    left_s = (facts.next_decision_ms - ctx.now_ms) / 1000 / ctx.installation.clock.factor
    return longer_than_wall_s < left_s <= _LONGEST_PAUSE_WALL_S
