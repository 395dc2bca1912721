"""Needed budgets: how much money `decide` requires before it starts a job.

Its estimates include starts, interruptions and the uncertainty of speeds, so this is more than the job should cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.market import Market
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import considered
from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered, Filters
from orchestrator.policy.ranking.enough import Needed, needed, to_start


def needed_budgets(
    demands: Sequence[Demand], market: Market, perf: PerfBook, *, limits: MoveLimits
) -> Mapping[str, Needed]:
    """The needed budget of each job, by job id, to start now, from its checkpoint if it has one. The budgets that the
    jobs have are ignored."""
    return {
        demand.job.id: needed(demand, forecast, filtered)
        for demand, filtered, forecast in _considered(demands, market, perf, limits)
    }


def budgets_to_start(
    demands: Sequence[Demand], market: Market, perf: PerfBook, *, limits: MoveLimits
) -> Mapping[str, int]:
    """By job id, the budget (nano-USD) with less than which a job rents no machine (enough.to_start)."""
    return {
        demand.job.id: to_start(demand, perf, filtered)
        for demand, filtered, _ in _considered(demands, market, perf, limits)
    }


def _considered(
    demands: Sequence[Demand], market: Market, perf: PerfBook, limits: MoveLimits
) -> Iterator[tuple[Demand, Filtered, Forecast]]:
    filters = Filters(market, limits)
    for demand in demands:
        filtering = filters.of(demand.nodes)
        yield demand, *considered(demand, filtering, filtering.market, perf, None, None)
