"""Enough: the single rule for the budget that messages suggest if a budget is too small.

It covers the amount already spent, the rest of the job at the 95th percentile of its cost, and the reserve for saving a
checkpoint and ending the machines, in case the price has doubled since the last poll.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.cost import Forecast, forecast_of
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.limits import open_or_shut
from orchestrator.policy.ranking.order import rank
from orchestrator.policy.ranking.renting import least_left, to_rent

CENT_NANO_USD = 10_000_000


@dataclass(frozen=True, slots=True)
class Needed:
    """nano-USD, including the amount already spent. With less than `least`, the job cannot be paid for on any offer (at
    the 5th percentile of its cost). `enough` pays for an offer at the 95th percentile: one that meets the deadline as
    safely as without a budget or, if no offer meets it (`late`), any offer."""

    least: int
    enough: int
    late: bool = False

    @property
    def enough_cents(self) -> int:
        """`enough` in whole cents, rounded up."""
        return -(-self.enough // CENT_NANO_USD)

    @property
    def also_late(self) -> str:
        """A note if more than money is missing; begins with a semicolon, "" if only money is missing."""
        return "; the deadline cannot be met, so it finishes late" if self.late else ""


NOTHING = Needed(0, 0)
"""The result for a job whose cost is not known yet, or that no offer fits now: it may begin with any budget."""


def needed(demand: Demand, forecast: Forecast, filtered: Filtered) -> Needed:
    """The budget that a job needs. Its present budget is ignored, and so is a deadline that is not its own."""
    if not forecast.known or not filtered.usable.any():
        return NOTHING
    free, pool, usable = _with_budget(_by_own_deadline(demand), None), forecast.pool, filtered.usable
    spent = demand.spent_nano_usd
    cost = np.maximum(forecast.high.cost, to_rent(demand, forecast))
    paid = demand.reserve.with_reserve(spent + cost, pool.price_s, forecast.longest_step_s, pool.spot)
    budgets = spent + np.ceil(paid - spent)
    least = spent + math.ceil(forecast.low.cost[usable].min())
    amounts = [int(each) for each in np.unique(budgets[usable]).tolist()]  # may exceed an int64
    if free.job.deadline_at_ms is None:
        return Needed(least, amounts[0])
    best = rank(free, forecast, filtered)
    if best.mode == "late":
        return Needed(least, amounts[0], late=True)
    if best.mode != "safe":
        return Needed(least, int(budgets[best.pool.at(int(best.order[0]))]))
    # More money never makes an offer less safe, so bisection finds the smallest sufficient amount.
    first, last = 0, len(amounts) - 1
    while first < last:
        middle = (first + last) // 2
        if rank(_with_budget(free, amounts[middle]), forecast, filtered).mode == "safe":
            last = middle
        else:
            first = middle + 1
    return Needed(least, amounts[first])


def to_start(demand: Demand, perf: PerfBook, filtered: Filtered) -> int:
    """With less budget than this (nano-USD, including the amount already spent), a job is paused before it rents a
    machine: the rest pays for no offer, not even for one without capacity at present. 0 if no offer fits."""
    pool = open_or_shut(filtered)
    if not pool.rows.size:
        return 0
    return demand.spent_nano_usd + int(least_left(demand, forecast_of(demand, pool, perf, None)).min())


def enough_to_rent(budget_nano_usd: int) -> str:
    """A note that the budget of `to_start` is enough to begin with, for a job whose cost is not known."""
    return f"${-(-budget_nano_usd // CENT_NANO_USD) / 100:,.2f} is enough to rent a machine; training costs more"


def _with_budget(demand: Demand, budget_nano_usd: int | None) -> Demand:
    return replace(demand, job=replace(demand.job, spec=replace(demand.job.spec, budget_nano_usd=budget_nano_usd)))


def _by_own_deadline(demand: Demand) -> Demand:
    if not demand.hurries:
        return demand
    spec = replace(demand.job.spec, deadline_s=None, deadline_at_ms=demand.own_due_ms)
    return replace(demand, job=replace(demand.job, spec=spec), hurries=False)
