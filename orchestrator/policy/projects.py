"""Projects: which jobs come first, and to which part of shared machines each is entitled. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.policy.demand import Demand
from orchestrator.policy.groups.time_slices import Contender

STARVED_S = 86_400.0
"""Market seconds. A job that has run nowhere for longer counts as of the highest priority: so priorities delay a job by
a day at most."""


def priority_of(own: int, highest: int, idle_s: float) -> int:
    """The priority that counts for a job that has run nowhere for `idle_s` (market seconds); `highest` is that of all
    projects, `own` that of its own."""
    return max(own, highest) if idle_s > STARVED_S else own


def weighted(contenders: Sequence[Contender], demands: Sequence[Demand]) -> list[Contender]:
    """The contenders with weights that add up, in each project, to the weight of the project: a job's own weight is its
    part of that. Where no project has a weight, jobs keep their own."""
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
