"""The objective of a job: its own, or the policy of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.model import Job
from orchestrator.store import GroupOutline, Tx


def objectives(tx: Tx, jobs: Iterable[Job]) -> dict[str, str]:
    """The `objective_of` each job, by job id."""
    listed = list(jobs)
    groups = groups_of(tx, listed)
    return {job.id: objective_of(job, groups) for job in listed}


def groups_of(tx: Tx, jobs: Iterable[Job]) -> dict[str, GroupOutline]:
    """The groups that the jobs belong to, by group id."""
    return tx.group_outlines({job.group_id for job in jobs if job.group_id is not None})


def objective_of(job: Job, groups: Mapping[str, GroupOutline]) -> str:
    """The job's objective, or the policy of its group, unless that is `cheapest`: then each job follows its own
    objective."""
    group = groups.get(job.group_id or "")
    return job.spec.objective.name if group is None or group.policy == "cheapest" else group.policy
