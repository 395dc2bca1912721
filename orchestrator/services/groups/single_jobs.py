"""Decides each job of a group as if it were alone, with the costs of its offers and the reasons against the others."""

from __future__ import annotations

from orchestrator.installation import Installation
from orchestrator.model import GroupSpec
from orchestrator.services.groups.plan import make_ready, new_jobs
from orchestrator.services.jobs.plan import planned
from orchestrator.services.views import PlanView


def decided_alone(installation: Installation, group: GroupSpec) -> PlanView:
    """The decisions, in the order of the file. Raises SpecError."""
    make_ready(installation, group)
    jobs = new_jobs(installation, group)
    return planned(installation, jobs, only=[job.id for job in jobs], compared=True)
