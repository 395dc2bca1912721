"""Whether the remaining budgets of projects are enough for a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.engine.billing.of_project import spent_by_project_nano_usd
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.control_plane.project_limits import present
from orchestrator.services.shortfalls import ProjectMoney
from orchestrator.services.views import Decision
from orchestrator.store import Tx
from providers.money import usd


def costs_of(new: Sequence[Job], decisions: Iterable[Decision]) -> Mapping[str, int]:
    """The cost of each project's new jobs (nano-USD), as far as it is known."""
    projects, costs = {job.id: job.project for job in new}, Counter[str]()
    for each in decisions:
        if each.job_id in projects:
            costs[projects[each.job_id]] += each.cost_nano_usd or 0
    return costs


def short_projects(
    installation: Installation, tx: Tx, costs: Mapping[str, int], now_ms: int
) -> tuple[ProjectMoney, ...]:
    """The projects whose budgets, as used by the control plane, are too small for new jobs with these costs (nano-USD)
    in each project."""
    short, projects = [], present(installation, tx)
    for project, cost in sorted(costs.items()):
        dollars = projects.of(project).budget
        if dollars is None:
            continue
        spent = spent_by_project_nano_usd(tx, project, now_ms)
        if spent + cost > usd(dollars):
            short.append(ProjectMoney(project, usd(dollars), spent, cost))
    return tuple(short)
