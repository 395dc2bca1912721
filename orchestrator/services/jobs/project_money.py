"""Whether what is left of the budgets of projects pays for a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from orchestrator.engine.billing.machine_cost import unbooked_nano_usd
from orchestrator.engine.billing.project_budget import unsettled_runs_of
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.shortfalls import ProjectMoney
from orchestrator.services.views import Decision
from orchestrator.store import Tx
from providers.money import usd


def costs_of(new: Sequence[Job], decisions: Iterable[Decision]) -> Mapping[str, int]:
    """What the new jobs of each project cost (nano-USD), as far as that is known."""
    projects, costs = {job.id: job.project for job in new}, Counter[str]()
    for each in decisions:
        if each.job_id in projects:
            costs[projects[each.job_id]] += each.cost_nano_usd or 0
    return costs


def short_projects(
    installation: Installation, tx: Tx, costs: Mapping[str, int], now_ms: int
) -> tuple[ProjectMoney, ...]:
    """The projects whose budgets do not pay for new jobs that cost this much (nano-USD) in each project."""
    short = []
    for project, cost in sorted(costs.items()):
        dollars = installation.config.projects.of(project).budget
        if dollars is None:
            continue
        spent = tx.project_nano_usd(project)
        with suppress(ValueError):  # a price is not known for all of the time
            spent += unbooked_nano_usd(tx, unsettled_runs_of(tx, project), now_ms)
        if spent + cost > usd(dollars):
            short.append(ProjectMoney(project, usd(dollars), spent, cost))
    return tuple(short)
