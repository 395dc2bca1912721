"""Projects: which jobs come first, and which part of the shared machines each job is entitled to. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.policy.demand import Demand
from orchestrator.policy.groups.time_slices import Contender

STARVED_S = 86_400.0
"""Market seconds. A job that has waited longer than this gets the highest priority, so priorities delay a job by at
most a day."""


def priority_of(own: int, highest: int, idle_s: float) -> int:
    """The effective priority of a job that has not run for `idle_s` (market seconds). `own` is the priority of its
    project, `highest` the highest of all projects."""
    return max(own, highest) if idle_s > STARVED_S else own


def weighted(contenders: Sequence[Contender], demands: Sequence[Demand]) -> list[Contender]:
    """The contenders with new weights: those of a project's jobs add up to the project's weight, in proportion to the
    jobs' own weights. If no project has a weight, jobs keep their own."""
    about: Mapping[str, Demand] = {each.job.id: each for each in demands}
    whole: defaultdict[str, float] = defaultdict(float)
    for each in contenders:
        whole[about[each.job_id].job.project] += each.weight

    def weight(each: Contender) -> float:
        demand = about[each.job_id]
        if demand.project_weight is None:
            return each.weight
        return each.weight * demand.project_weight / whole[demand.job.project]

    return [replace(each, weight=weight(each)) for each in contenders]
