"""Limits: whether an offer meets a job's deadline and budget, and how much time and money that leaves.

An offer meets a limit *safely* if it does so at the 95th percentile, *possibly* if it does at the 5th. A spot machine
is safe for a deadline only while there is time to lose it and still finish on demand ("safety net" of Can't Be Late,
NSDI '24). If no on-demand offer is in time, the spot machine must be safe by itself: there must be enough time for its
losses and outages.

Columns are over the pool of the forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.chance import few_losses
from orchestrator.policy.ranking.cost import Forecast, forecast_of
from orchestrator.policy.ranking.eligible import NONE, SHUT_FOR_A_WHILE, Filtered
from orchestrator.policy.ranking.pool import Floats, Pool
from orchestrator.policy.ranking.renting import least_left
from orchestrator.policy.ranking.routes import Routes
from orchestrator.policy.ranking.transition_costs import LINK_BYTES_PER_S

Bools = NDArray[np.bool_]
Tiers = NDArray[np.int8]

SAFE, POSSIBLE, IMPOSSIBLE = 2, 1, 0
SAFELY = 0.95  # the probability from which a limit counts as met safely
KEPT_BACK = 0.02  # the share of the work's time that is reserved before a deadline


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on a job's waiting, time and cost. None: there is no such limit.

    The job meets its deadline, which is in `left_s` market seconds, with `margin_s` to spare, by renting on-demand if
    necessary. From now on, that would take `bought_s` and cost `bought_cost` (nano-USD). A job with a budget spends no
    more than `left_cost`. `short_of_money`: on-demand would be in time, but `left_cost` may not pay for it. `waits`:
    whether the job may wait for capacity at all.
    """

    left_s: float | None = None
    bought_s: float = 0.0
    bought_cost: float = 0.0
    margin_s: float = 0.0
    left_cost: float | None = None
    short_of_money: bool = False
    waits: bool = True

    @property
    def end_s(self) -> float:
        """When the job must be finished, in market seconds from now; infinite without a deadline."""
        return math.inf if self.left_s is None else max(self.left_s - self.margin_s, self.bought_s)


NO_LIMITS = Limits()


def kept_limits(demand: Demand, forecast: Forecast, usable: Bools, tiers: Tiers) -> Limits:
    """The limits of a job that some offer meets safely."""
    left = budget_left(demand)
    left_cost, left_s = None if left is None else float(left), time_left_s(demand, forecast)
    if left_s is None:
        return Limits(left_cost=left_cost)
    pool, high = forecast.pool, forecast.high
    in_time = usable & ~pool.spot & (high.seconds <= left_s)
    bought = np.flatnonzero(in_time & (tiers == SAFE))
    if not bought.size:
        return Limits(left_cost=left_cost, short_of_money=left_cost is not None and bool(in_time.any()))
    at = int(bought[np.argmin(forecast.mid.cost[bought])])
    seconds = float(forecast.mid.seconds[at])
    kept_s = margin_s(float(forecast.setback_s[pool.cell[at]]), seconds)
    return Limits(left_s, seconds, float(forecast.mid.cost[at]), kept_s, left_cost)


def time_left_s(demand: Demand, forecast: Forecast) -> float | None:
    """Market seconds until the deadline; None without a deadline, or if the job's duration is not known."""
    deadline_ms = demand.job.deadline_at_ms
    if deadline_ms is None or not forecast.known:
        return None
    return (deadline_ms - forecast.pool.market.at) / 1000


def budget_left(demand: Demand) -> int | None:
    """nano-USD left of the budget; None without one."""
    budget = demand.job.spec.budget_nano_usd
    return None if budget is None else budget - demand.spent_nano_usd


def rescue_s(forecast: Forecast, usable: Bools) -> float | None:
    """Market seconds (pessimistic) to bring the checkpoint to the fastest usable on-demand offer, restart and finish
    there; None if there is none."""
    pool = forecast.pool
    restart_s = forecast.high.run_s + pool.start_high_s + forecast.way_s
    rescuers = restart_s[pool.cell[usable & ~pool.spot]]
    return float(rescuers.min()) if rescuers.size else None


def rescue_there_s(forecast: Forecast, usable: Bools) -> Floats | None:
    """As `rescue_s`, but over the cells: if the job goes to the cell first, so that its checkpoint is then in that
    region.

    A budget must also pay for transferring the checkpoint back. None without a usable on-demand offer; infinite where
    no offer can be reached.
    """
    pool = forecast.pool
    bought = np.flatnonzero(usable & ~pool.spot)
    if not bought.size:
        return None
    cell, region = pool.cell[bought], pool.market.listing.site_region[pool.site]
    gap_s = 0.0 if pool.here is None else forecast.demand.gap_s
    restart_s = (forecast.high.run_s + pool.start_high_s)[cell] + gap_s
    near_s = np.full(int(region.max()) + 1, np.inf)
    np.minimum.at(near_s, region[cell], restart_s)
    transfer_s = forecast.demand.checkpoint_bytes / LINK_BYTES_PER_S
    far_s = restart_s[_pays_for_the_way_back(forecast, bought)].min(initial=np.inf) + transfer_s
    rescue: Floats = np.minimum(near_s, far_s)[region]
    return rescue


def _pays_for_the_way_back(forecast: Forecast, bought: NDArray[np.int64]) -> Bools:
    """Whether the budget pays for each of the positions `bought` and for transferring the checkpoint there from the
    most expensive place."""
    left, size, market = budget_left(forecast.demand), forecast.demand.checkpoint_bytes, forecast.pool.market
    if left is None or not size:
        return np.ones(len(bought), np.bool_)
    place = [market.place(row) for row in forecast.pool.rows[bought].tolist()]
    routes = Routes(forecast.demand, market)
    way = {each: routes.from_sites(each, size).max() for each in set(place)}
    paid: Bools = forecast.high.cost[bought] + np.array([way[each] for each in place]) <= left
    return paid


def lacks_money(demand: Demand, perf: PerfBook, filtered: Filtered) -> bool:
    """Whether the rest of the budget pays for no offer at all (at the 5th percentile of its cost), so that waiting
    cannot help. Offers without capacity at present also count."""
    if budget_left(demand) is None or not filtered.usable_at.size:
        return False
    forecast = forecast_of(demand, open_or_shut(filtered), perf, None)
    return bool((affordable(demand, forecast) == IMPOSSIBLE).all())


def open_or_shut(filtered: Filtered) -> Pool:
    """The offers that the job may use, including those without capacity at present."""
    reasons, market = filtered.rejection_reasons, filtered.market
    found = np.isin(reasons, np.array([NONE, *SHUT_FOR_A_WHILE], np.int8)) & market.priced
    return Pool(market, np.flatnonzero(found), setup_s=filtered.setup_s)


def latest_start_s(demand: Demand, forecast: Forecast, filtered: Filtered) -> float | None:
    """For how many more market seconds a job may wait and still meet its deadline on demand with a margin. None without
    a deadline; negative if it may not wait at all."""
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return None
    rescue = rescue_s(forecast, filtered.usable & (affordable(demand, forecast) == SAFE))
    if rescue is None:
        return -1.0
    return left_s - rescue - 2 * margin_s(float(forecast.setback_s.max(initial=0.0)), rescue)


def margin_s(setback_s: float, work_s: float) -> float:
    """Market seconds that are reserved before a deadline: for one more start and 2 % of the work."""
    return setback_s + KEPT_BACK * work_s


def on_time(demand: Demand, forecast: Forecast, usable: Bools) -> Tiers:
    """How each offer meets the deadline. `usable` are the offers that may be rented if the machine is lost."""
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return np.full(len(usable), SAFE, np.int8)
    pool, possible = forecast.pool, forecast.low.seconds <= left_s
    safe = forecast.high.seconds <= left_s
    rescued = _rescued(forecast, usable, left_s)
    if rescued is None:
        safe &= ~pool.spot | (few_losses(forecast, np.arange(len(pool.rows)), left_s) >= SAFELY)
    else:
        # An unknown speed will soon be measured, and on-demand can still be rented then. Until then the expected speed
        # counts, and where the job already is, the 5th percentile of the time.
        hoped = forecast.mid.seconds <= left_s
        if pool.current is not None:
            hoped |= possible & (pool.rows == pool.current)
        safe = np.where(pool.spot, safe & rescued, safe) | (hoped & rescued & forecast.measurable)
    return _tiers(safe, possible)


def _rescued(forecast: Forecast, usable: Bools, left_s: float) -> Bools | None:
    """Over the rows: whether a usable on-demand offer could still take over in time if the machine there is lost. None
    if no on-demand offer is itself in time."""
    in_time = usable & ~forecast.pool.spot & (forecast.high.seconds <= left_s)
    rescue = rescue_there_s(forecast, usable) if in_time.any() else None
    if rescue is None:
        return None
    # The margin is one more start and 2 % of the work. It is twice that before a new spot machine is taken, so that a
    # job does not go back to spot as soon as on-demand has gained a little slack. Aborting a move away from spot
    # also needs twice the margin, so that the move is not started again at once.
    margins = np.full(len(rescue), 2.0)
    if forecast.pool.here is not None and forecast.move is None:
        margins[forecast.pool.here] = 1.0
    need = rescue + forecast.begin_s + margins * (forecast.setback_s + KEPT_BACK * rescue)
    return forecast.over_rows(need) <= left_s


def affordable(demand: Demand, forecast: Forecast) -> Tiers:
    """How each offer meets the budget."""
    left, size = budget_left(demand), len(forecast.pool.rows)
    if left is None:
        return np.full(size, SAFE, np.int8)
    if left <= 0:
        return np.full(size, IMPOSSIBLE, np.int8)
    possible = least_left(demand, forecast) <= left
    # without evidence of the job's speed, only the cost of renting a machine is known
    return _tiers(possible & (forecast.high.cost <= left) if forecast.known else possible, possible)


def _tiers(safe: Bools, possible: Bools) -> Tiers:
    return np.where(safe, SAFE, np.where(possible, POSSIBLE, IMPOSSIBLE)).astype(np.int8)
