"""Needed budgets: how much money `decide` requires before it starts a job.

Its estimates include starts, interruptions and the uncertainty of speeds, so this is more than the job should cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.market import Market, of_machines
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import considered
from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.ranking.eligible import Filter
from orchestrator.policy.ranking.enough import Needed, needed


def needed_budgets(
    demands: Sequence[Demand], market: Market, perf: PerfBook, *, limits: MoveLimits
) -> Mapping[str, Needed]:
    """The needed budget of each job, by job id, to start now, from its checkpoint if it has one. The budgets that the
    jobs have are ignored."""
    filters: dict[int, Filter] = {}
    found = {}
    for demand in demands:
        if demand.nodes not in filters:
            filters[demand.nodes] = Filter(of_machines(market, demand.nodes), limits)
        filtering = filters[demand.nodes]
        filtered, forecast = considered(demand, filtering, filtering.market, perf, None, None)
        found[demand.job.id] = needed(demand, forecast, filtered)
    return found
