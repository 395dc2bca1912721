"""Nearest: if every offer is rejected, finds the offer that comes closest, and the budget that would pay for one."""

from __future__ import annotations

import numpy as np

from orchestrator.market import Market
from orchestrator.perf import InstanceKind
from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered, RejectionReason
from orchestrator.policy.ranking.enough import enough_to_rent, needed, to_start
from orchestrator.policy.ranking.limits import Bools, time_left_s
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.pool import Rows
from orchestrator.policy.ranking.renting import least_left
from providers.hardware import GPUS


def nearest_miss(market: Market, forecast: Forecast, ranking: Ranking) -> int:
    """The rejected row that comes closest: among the rows whose reason is checked last, the one with the smallest
    miss."""
    last = int(ranking.rejection_reasons.max())
    rows = np.flatnonzero(ranking.rejection_reasons == last)
    if last == RejectionReason.BUDGET:
        rows = _refused_for_budget(forecast.demand, forecast, ranking)
        # If the speed is unknown, so is the cost: only the amount needed to rent a machine is known.
        cost = forecast.mid.cost if forecast.known else least_left(forecast.demand, forecast)
        return int(rows[np.argmin(cost[np.searchsorted(forecast.pool.rows, rows)])])
    if last == RejectionReason.DEADLINE:
        return int(rows[np.argmin(forecast.mid.seconds[np.searchsorted(forecast.pool.rows, rows)])])
    if last == RejectionReason.RENT_LIMIT:
        return int(rows[np.argmin(market.price[rows])])
    if last == RejectionReason.GPU_MEMORY:
        gaps = np.array([_memory_gap(kind, forecast) for kind in market.listing.kinds])
        return int(rows[np.argmin(gaps[market.listing.kind[rows]])])
    if last in (RejectionReason.NO_CAPACITY, RejectionReason.STALE_PRICE):
        wait = market.backed_off_until[rows] if last == RejectionReason.NO_CAPACITY else market.price_age_s(rows)
        return int(rows[np.argmin(wait)])
    return int(rows[0])


def budget_remedy(demand: Demand, forecast: Forecast, filtered: Filtered) -> str:
    """How to raise the budget so that it is enough (policy.ranking.enough). The reason against an offer names the
    expected cost, which is less.

    For a job that has not started, no command is named, because the job may not be submitted yet.
    """
    order = f"tradewind budget set {demand.typed_name or demand.job.name}"
    if not forecast.known and forecast.pool.current is not None:  # the cost of ending its machine is not known
        return f"; to continue: {order} USD"
    if not forecast.known:
        least = enough_to_rent(to_start(demand, forecast.perf, filtered))
        return f"; to continue: {order} USD ({least})" if demand.started else f"; it needs a larger budget: {least}"
    found = needed(demand, forecast, filtered)
    if not demand.started:
        enough = f"a budget of ${found.enough_cents / 100:,.2f} would be enough{' to finish late' * found.late}"
        return f"; {enough} in 95% of cases (the cost may be higher than expected)"
    return f"{found.also_late}; to continue: {order} {found.enough_cents / 100:.2f}"


def _refused_for_budget(demand: Demand, forecast: Forecast, ranking: Ranking) -> Rows:
    """The rows rejected for the budget; only those that would meet the deadline, if there are any."""
    rows = np.flatnonzero(ranking.rejection_reasons == RejectionReason.BUDGET)
    in_time = ~hopeless(demand, forecast, rows)
    return rows[in_time] if in_time.any() else rows


def hopeless(demand: Demand, forecast: Forecast, rows: Rows) -> Bools:
    """Which of these rows, all in the pool, cannot meet the deadline even at the 5th percentile of the time."""
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return np.zeros(len(rows), np.bool_)
    late: Bools = forecast.low.seconds[np.searchsorted(forecast.pool.rows, rows)] > left_s
    return late


def _memory_gap(kind: InstanceKind, forecast: Forecast) -> int:
    """The bytes by which a GPU's memory is outside the job's range or too small for one of its steps."""
    job = forecast.demand.job
    least, most = job.spec.resources.gpu_memory_bytes or (0, None)
    has = 0 if kind[0] is None else GPUS[kind[0]].memory_bytes
    short = max(forecast.perf.shortfalls(job, (kind,)), default=0)
    return max(least - has, has - most if most is not None else 0, short)
