"""Needed budgets: how much money `decide` requires before it starts a job.

Its estimates include starts, interruptions and the uncertainty of speeds, so this is more than the job should cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.market import Market, of_machines
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import considered
from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filter, Filtered
from orchestrator.policy.ranking.order import rank


@dataclass(frozen=True, slots=True)
class Needed:
    """nano-USD. With less than `least`, no offer can pay for the job (at the 5th percentile of its cost). `enough` pays
    for an offer at the 95th percentile, and for one that keeps the deadline as safely as without a budget."""

    least: int
    enough: int


NOTHING = Needed(0, 0)
"""For a job whose cost is not known yet, or that no offer fits now: it may begin with any budget."""


def needed_budgets(
    demands: Sequence[Demand], market: Market, perf: PerfBook, *, limits: MoveLimits
) -> Mapping[str, Needed]:
    """The needed budget of each job, by job id. The budgets that the jobs have are ignored."""
    filters: dict[int, Filter] = {}
    found = {}
    for demand in demands:
        if demand.nodes not in filters:
            filters[demand.nodes] = Filter(of_machines(market, demand.nodes), limits)
        filtering, free = filters[demand.nodes], _with_budget(demand, None)
        filtered, forecast = considered(free, filtering, filtering.market, perf, None, None)
        known = forecast.known and filtered.usable.any()
        found[demand.job.id] = _needed(free, forecast, filtered) if known else NOTHING
    return found


def _needed(free: Demand, forecast: Forecast, filtered: Filtered) -> Needed:
    usable, high = filtered.usable, forecast.high.cost
    least = math.ceil(forecast.low.cost[usable].min())
    amounts = [int(each) for each in np.unique(np.ceil(high[usable])).tolist()]  # may be more than an int64 holds
    if free.job.deadline_at_ms is None:
        return Needed(least, amounts[0])
    best = rank(free, forecast, filtered)
    if best.mode == "late":
        return Needed(least, amounts[0])
    if best.mode != "safe":
        return Needed(least, math.ceil(high[best.pool.at(int(best.order[0]))]))
    # More money never makes an offer less safe, so bisection finds the smallest sufficient amount.
    first, last = 0, len(amounts) - 1
    while first < last:
        middle = (first + last) // 2
        if rank(_with_budget(free, amounts[middle]), forecast, filtered).mode == "safe":
            last = middle
        else:
            first = middle + 1
    return Needed(least, amounts[first])


def _with_budget(demand: Demand, budget_nano_usd: int | None) -> Demand:
    return replace(demand, job=replace(demand.job, spec=replace(demand.job.spec, budget_nano_usd=budget_nano_usd)))
