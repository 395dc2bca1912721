"""Spread: what a plan shows of each offer: the expected cost and time to finish, with their 5th and 95th percentile.

Independently uncertain are: the speed, the share of time that checkpoints take, the first start, what losses of
machines add (`interruptions`), how long a proposed wait lasts, and the future price of a spot machine. Deviations from
the expected value therefore add up as squares, separately on either side (Barlow 2003, "Asymmetric errors"); adding all
worst cases would be far too wide. The cost of a machine is price times time, so there the deviations of the logarithms
add up.

Under a deadline that on-demand can meet, the job finishes before it: the part of the work for which no time is left on
spot is bought on demand.

How far prices deviate comes from `orchestrator.market.reversion`, and the effect of their age from `ageing`. Offers are
ranked by the expected course alone (cost.py). Limits are checked against `Forecast.high`, which is stricter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.chance import normal_cdf
from orchestrator.policy.ranking.cost import Z95, Floats, Forecast, Rows
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.interruptions import NO_LIMITS, Interruptions, Limits, Moments, quantile
from orchestrator.policy.ranking.objectives import SAFE, Ranking, budget_left, margin_s, time_left_s

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """5th percentile, expected value and 95th percentile over the rows of a forecast, in market seconds and
    nano-USD."""

    low_s: Floats
    mid_s: Floats
    high_s: Floats
    low_cost: Floats
    mid_cost: Floats
    high_cost: Floats


def limits_of(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> Limits:
    """The limits that a job keeps, if it keeps them safely."""
    left = budget_left(demand)
    if ranking.mode != "safe":
        return Limits(waits=False)
    left_cost, left_s = None if left is None else float(left), time_left_s(demand, forecast)
    if left_s is None:
        return Limits(left_cost=left_cost)
    pool, high = forecast.pool, forecast.high
    bought = np.flatnonzero(filtered.usable & ~pool.spot & (ranking.tiers == SAFE) & (high.seconds <= left_s))
    if not bought.size:
        return Limits(left_cost=left_cost)
    at = int(bought[np.argmin(forecast.mid.cost[bought])])
    seconds = float(forecast.mid.seconds[at])
    kept_s = margin_s(float(forecast.setback_s[pool.cell[at]]), seconds)
    return Limits(left_s, seconds, float(forecast.mid.cost[at]), kept_s, left_cost)


class Spreads:
    """The spreads of one forecast. Each pair of deviations from the expected value is first for the better, then for
    the worse. `open_at` are the positions of offers where the job may go after a loss."""

    def __init__(self, forecast: Forecast, open_at: Rows, limits: Limits = NO_LIMITS) -> None:
        pool, mid = forecast.pool, forecast.mid
        self._forecast, self._limits = forecast, limits
        self._lost = Interruptions(forecast, open_at, limits)
        faster_s, slower_s = forecast.work_range_s
        work_s = mid.run_s - mid.losses * forecast.setback_s
        start_s = pool.from_here(pool.start_s)
        start = np.array([start_s - pool.from_here(pool.start_low_s), pool.from_here(pool.start_high_s) - start_s])
        work = np.array([work_s - faster_s, slower_s - work_s])
        self._billed = np.hypot(work, start)
        self._trained = self._billed if forecast.transition_costs.waits else work
        self._afresh_s = mid.run_s + start_s

    def going(self, rivals: Bools, wait_s: Floats | None = None) -> Spread:
        """The spread of going there from where the job is, after the expected wait of `wait_s` (over the rows) for its
        capacity. `rivals` are rows that may be chosen instead if prices change: the job may then finish as soon as on
        the fastest."""
        forecast, mid, over, lost = self._forecast, self._forecast.mid, self._forecast.over_rows, self._lost
        cost, down, up, dear = self._costs(mid.cost + lost.elsewhere, mid.billed_s)
        alone_s, extra = mid.seconds + lost.away_s, lost.seconds
        if wait_s is not None:
            alone_s = alone_s + wait_s
            extra = Moments(extra.mean + wait_s, extra.variance + wait_s**2 * (1 + 1 / lost.outages_known))
        early, late = (np.hypot(over(work), off) for work, off in zip(self._trained, _deviations(extra), strict=True))
        low_s, mid_s, high_s = np.maximum(alone_s - early, 0), alone_s, alone_s + late
        if self._limits.left_s is not None:
            spot, end_s = forecast.pool.spot, self._limits.end_s
            mid_s = np.where(spot, np.maximum(alone_s - _excess(alone_s - end_s, early / Z95, late / Z95), 0), alone_s)
            last_s = np.where(spot, max(self._limits.left_s, self._limits.bought_s), np.inf)
            low_s, high_s = np.minimum(low_s, mid_s), np.maximum(np.minimum(high_s, last_s), mid_s)
            low_share, mid_share, high_share = self._bought()
            sold = np.maximum(self._limits.bought_cost - cost, 0) * spot
            cost = cost + sold * mid_share
            down, up = np.hypot(down, sold * (mid_share - low_share)), np.hypot(up, sold * (high_share - mid_share))
        if rivals.any():
            low_s = np.minimum(low_s, _soonest(mid.cost, mid_s, mid.cost * dear, rivals))
        dearest = self._payable(mid.cost, cost + up)
        cost = self._payable(mid.cost, cost)
        return Spread(np.maximum(low_s, 0), mid_s, high_s, np.maximum(cost - down, 0), cost, dearest)

    def _bought(self) -> tuple[Floats, Floats, Floats]:
        """The share of the work that is bought on demand, because even without waiting there is not enough time: 5th
        percentile, expected, 95th."""
        over, bought_s, end_s = self._forecast.over_rows, self._limits.bought_s, self._limits.end_s
        seconds = self._forecast.mid.seconds
        early, late = (
            np.hypot(over(work), off) for work, off in zip(self._trained, _deviations(self._lost.billed), strict=True)
        )

        def share(excess_s: Floats, at_s: Floats) -> Floats:
            found: Floats = np.clip(excess_s / np.maximum(np.maximum(at_s, end_s) - bought_s, 1.0), 0, 1)
            return found

        low, high = (share(np.maximum(each - end_s, 0), each) for each in (seconds - early, seconds + late))
        mid = share(_excess(seconds - end_s, early / Z95, late / Z95), seconds)
        return low, np.clip(mid, low, high), high

    def _payable(self, alone: Floats, cost: Floats) -> Floats:
        """What of a cost is paid: where the budget covers the offer `alone`, never more than is left of it."""
        left = self._limits.left_cost
        return cost if left is None else np.where(alone <= left, np.minimum(cost, left), cost)

    def afresh(self) -> Spread:
        """The spread of starting there from nowhere (Forecast.afresh)."""
        forecast, over, lost = self._forecast, self._forecast.over_rows, self._lost
        seconds, cost = forecast.afresh(forecast.mid)
        cost, down, up, _ = self._costs(cost + lost.elsewhere, self._afresh_s)
        mid_s = seconds + lost.away_s
        early, late = (
            np.hypot(over(work), off) for work, off in zip(self._billed, _deviations(lost.seconds), strict=True)
        )
        return Spread(np.maximum(mid_s - early, 0), mid_s, mid_s + late, np.maximum(cost - down, 0), cost, cost + up)

    def _costs(self, cost: Floats, billed_s: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """(expected cost at the known prices, its deviation downwards, upwards, highest price as a multiple of the
        expected one)."""
        pool, price_s, seconds = self._forecast.pool, self._forecast.mid.price_s, self._forecast.over_rows(billed_s)
        share = self._billed / np.maximum(billed_s, 1e-9)
        longer = np.log(np.array([np.maximum(1 - share[0], 1e-3), 1 + share[1]]))[:, pool.cell]
        prices = pool.ahead.range(billed_s, pool.cell)
        squares = longer**2 + np.log(prices) ** 2
        expected = cost
        if pool.drift is not None:
            # The expected cost counts an old price one standard deviation higher; here the deviation is around it.
            squares += (Z95 * pool.drift) ** 2
            expected_s, price_s = price_s, price_s * np.exp(-pool.drift)
            expected = cost - (expected_s - price_s) * seconds
        machine, (down, up) = price_s * seconds, np.sqrt(squares)
        fewer, more = _deviations(self._lost.cost)
        low = np.hypot(machine * np.expm1(-down), fewer)
        high = np.hypot(machine * np.expm1(up), more)
        return cost, low + (cost - expected), np.maximum(high - (cost - expected), 0), prices[1]


def _deviations(moments: Moments) -> tuple[Floats, Floats]:
    """How far the 5th and the 95th percentile are from the mean."""
    return (
        np.maximum(moments.mean - quantile(moments, -Z95), 0),
        np.maximum(quantile(moments, Z95) - moments.mean, 0),
    )


def _excess(mean: Floats, below: Floats, above: Floats) -> Floats:
    """E[max(X, 0)] of a normal X whose standard deviation is that of the side on which 0 is not likely."""
    deviation = np.maximum(np.where(mean < 0, above, below), 1e-9)
    at = mean / deviation
    density = np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
    excess: Floats = mean * normal_cdf(at) + deviation * density
    return excess


def _soonest(cost: Floats, seconds: Floats, most: Floats, rivals: Bools) -> Floats:
    """Over the rows, the time of the fastest rival that costs at most `most`; the row's own if there is none."""
    positions = np.flatnonzero(rivals)
    order = positions[np.argsort(cost[positions], kind="stable")]
    fastest = np.minimum.accumulate(seconds[order])
    among = np.searchsorted(cost[order], most, side="right") - 1
    return np.where(among >= 0, np.minimum(fastest[among], seconds), seconds)
