"""Reserved: the offers that a job must leave to other jobs that have their turns there, by the rounds on owned machines
(time_sharing) or by the joint plan of its group (group_turns)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from orchestrator.engine.context import Context, Round
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs.pausing import give_way
from orchestrator.model import Job, JobState
from orchestrator.policy import Demand

TAKE_PART: tuple[JobState, ...] = ("queued", "starting", "running", "migrating", "pausing")
"""The states of jobs that may take turns. A pausing job takes turns only if it gives way to others."""


def at_its_turn(ctx: Context, demand: Demand) -> Demand:
    """The demand without the offers that are reserved for others now."""
    given = [each.given for each in _rounds(ctx, demand.job) if each.given is not None]
    reserved = tuple(sorted(set[str]().union(*(each.not_now.get(demand.job.id, ()) for each in given))))
    return replace(demand, reserved=reserved) if reserved else demand


def is_known(ctx: Context, job: Job) -> bool:
    """Whether the present turns account for this job. A job that has just arrived, or was resumed, is placed after
    turns are assigned again: before that, it would take another job's machine."""
    looked = [each for each in _rounds(ctx, job) if each.number is not None]
    return all(any((job.id, state) in each.seen for state in TAKE_PART) for each in looked)


def is_later(ctx: Context, job: Job) -> bool:
    """Whether a job has to wait for its turn on machines that it can use."""
    given = [each.given for each in _rounds(ctx, job) if each.given is not None]
    return any(each.not_now.get(job.id) and job.id not in each.has_turn for each in given)


def why_later(ctx: Context, job: Job) -> str | None:
    """Why a job that is not running must wait for others; None if it need not wait."""
    for each in _rounds(ctx, job):
        if each.given is not None and each.given.not_now.get(job.id):
            has_turn = job.id in each.given.has_turn
            now = "its turn has come: it starts as soon as a machine is free" if has_turn else "waits for its turn"
            return f"{now}: {each.why[job.id]}" if job.id in each.why else now
    return None


def end_turns(ctx: Context, of: Round, jobs: Collection[str]) -> bool:
    """Make these running jobs give way. Returns whether there is one."""
    return any([_gives_way(ctx, job_id, of.why.get(job_id, "")) for job_id in jobs])


def _rounds(ctx: Context, job: Job) -> list[Round]:
    of_group = None if job.group_id is None else ctx.group_rounds.get(job.group_id)
    return [ctx.round] if of_group is None else [ctx.round, of_group]


def _gives_way(ctx: Context, job_id: str, why: str) -> bool:
    with ctx.write() as tx:
        job, current = tx.job(job_id), snapshot.current_run(tx.runs(job_id=job_id))
        if job.state != "running" or current is None:
            return False
        give_way(ctx, tx, job, current, f"its turn is over: {why}")
    return True
