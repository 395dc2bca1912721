"""Followers: the jobs of a group that wait for others, and by when these must end so that the followers are on time.

A job without a deadline of its own, decided alone, would go where it is cheapest, however slow that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.market import Market
from orchestrator.model import Job
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.groups.following import before_deadlines, due_for_what_follows, hurrying
from orchestrator.policy.groups.order import before_each, in_turn
from orchestrator.store import Tx
from orchestrator.store.rows import Unreadable


def followers(tx: Tx, jobs: Sequence[Job], unreadable: Unreadable) -> list[Job]:
    """The queued jobs that come after one of these, directly or not, as far as deadlines depend on them: their own, or
    those of jobs after them."""
    known = {job.id for job in jobs}
    ids = tx.waiting_ids_of_groups({job.group_id for job in jobs if job.group_id is not None})
    missing = [job_id for job_id in ids if job_id not in known]
    waiting = [job for job in (*jobs, *tx.jobs_of(missing, unreadable)) if job.after and job.state == "queued"]
    urgent = before_deadlines(waiting)
    follow = [job for job in waiting if job.id in urgent or job.deadline_at_ms is not None]
    order = before_each([job.id for job in follow], {job.id: job.after for job in follow})
    reached = set[str]()
    for index in in_turn(order):
        job = follow[index]
        if not (known.isdisjoint(job.after) and reached.isdisjoint(job.after)):
            reached.add(job.id)
    return [job for job in follow if job.id in reached]


def in_time_for_followers(
    demands: Sequence[Demand],
    later: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    limits: MoveLimits,
) -> tuple[Demand, ...]:
    """The demands, with deadlines so early that the jobs `later` can be on time, where that is possible."""
    due = due_for_what_follows(demands, later, market, perf, running, limits)
    return tuple(hurrying(each, due[each.job.id]) if each.job.id in due else each for each in demands)
