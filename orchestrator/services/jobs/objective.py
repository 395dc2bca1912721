"""What decides about a job: its own objective, or the policy of its group."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.model import Job
from orchestrator.store import Tx


def objectives(tx: Tx, jobs: Iterable[Job]) -> dict[str, str]:
    """By job id, its objective, or the policy of its group unless that is `cheapest`: with that, each job follows its
    own objective."""
    listed = list(jobs)
    policies = tx.group_policies({job.group_id for job in listed if job.group_id is not None})
    found = {}
    for job in listed:
        policy = policies.get(job.group_id or "", "cheapest")
        found[job.id] = job.spec.objective.name if policy == "cheapest" else policy
    return found
