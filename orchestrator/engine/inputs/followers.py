"""Followers: jobs of a group that wait for other jobs and have deadlines, so the other jobs must hurry."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model import Job
from orchestrator.policy.groups.following import before_deadlines
from orchestrator.policy.groups.order import before_each, in_turn
from orchestrator.store import Tx
from orchestrator.store.rows import Unreadable


def followers(tx: Tx, jobs: Sequence[Job], unreadable: Unreadable) -> list[Job]:
    """The queued jobs that come after one of these, directly or indirectly, as far as a deadline depends on them: their
    own, or that of a job after them."""
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
