"""Followers: the jobs of a group that wait for others, and by when these must end so that the followers are on time.

A job without a deadline of its own, decided alone, would go where it is cheapest, however slow that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.market import Market
from orchestrator.model import Job
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.groups.following import due_for_what_follows
from orchestrator.store import Tx
from orchestrator.store.rows import Unreadable


def followers(tx: Tx, jobs: Sequence[Job], unreadable: Unreadable) -> list[Job]:
    """The queued jobs that come after one of these, directly or not; none if none of them has a deadline."""
    found: dict[str, Job] = {}
    for group_id in sorted({job.group_id for job in jobs if job.group_id is not None}):
        waiting = tx.jobs_of(tx.waiting_ids_of_group(group_id), unreadable)
        before = {job.id for job in jobs}
        while more := [job for job in waiting if job.id not in found and not before.isdisjoint(job.after)]:
            found |= {job.id: job for job in more}
            before |= {job.id for job in more}
    return list(found.values()) if any(job.deadline_at_ms is not None for job in found.values()) else []


def in_time_for_followers(
    demands: Sequence[Demand],
    later: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    limits: MoveLimits,
) -> tuple[Demand, ...]:
    """The demands, with deadlines so early that the jobs `later` can be on time, where that is possible."""
    after = {each.job.id: each.job.after for each in (*demands, *later)}
    due = due_for_what_follows(demands, later, after, market, perf, running, limits)
    return tuple(_until(each, due[each.job.id]) if each.job.id in due else each for each in demands)


def _until(demand: Demand, due_ms: int) -> Demand:
    spec = replace(demand.job.spec, deadline_s=None, deadline_at_ms=due_ms)
    return replace(demand, job=replace(demand.job, spec=spec), hurries=True)
