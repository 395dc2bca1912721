"""Spread: the figures that a plan shows for each offer: the expected cost and time to finish, with their 5th and 95th
percentile.

The following are uncertain independently of each other: the speed, the share of time that checkpoints take, the first
start, the effect of machine losses (`interruptions`), the length of a proposed wait, and the future price of a spot
machine. Deviations from the expected value therefore add up as squares, separately on either side (Barlow 2003,
"Asymmetric errors"); adding up all worst cases would be far too wide. The cost of a machine is price times time, so for
it the deviations of the logarithms add up.

Under a deadline that on-demand can meet, the job finishes before it: the work for which no time is left on spot runs on
demand. How much of its time a job on spot uses depends on capacity and prices in the coming days: it waits as long as
that saves money, so it may use all of it. Likewise, if its budget does not pay for on-demand machines until the end,
the job may spend all of the budget on them.

How far prices deviate comes from `orchestrator.market.reversion`, and the effect of their age from `ageing`. Offers are
ranked by the expected values (outlook.py). Limits are checked against `Forecast.high`, which is stricter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.cached_property import cached_property
from orchestrator.policy.ranking.chance import normal_cdf
from orchestrator.policy.ranking.cost import Z95, Forecast
from orchestrator.policy.ranking.interruptions import Interruptions, Moments
from orchestrator.policy.ranking.limits import Limits, time_left_s
from orchestrator.policy.ranking.pool import Floats

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """5th percentile, expected value and 95th percentile of time (market seconds) and cost (nano-USD), over the rows of
    a forecast."""

    low_s: Floats
    mid_s: Floats
    high_s: Floats
    low_cost: Floats
    mid_cost: Floats
    high_cost: Floats


class Spreads:
    """The spreads of one forecast.

    A pair of deviations from the expected value is always (for the better, for the worse). `others` are the market
    rows, all in the forecast, to which the job may go after a loss.
    """

    def __init__(self, forecast: Forecast, others: Sequence[int], limits: Limits) -> None:
        self._forecast, self._limits = forecast, limits
        self._lost = Interruptions(forecast, np.array([forecast.pool.at(row) for row in others], np.int64), limits)

    @property
    def time_to_wait(self) -> Floats:
        """The share of the losses after which there is time to wait for capacity, over the rows."""
        return self._lost.time_to_wait

    @cached_property
    def _start(self) -> Floats:
        """The deviations of the first start, over the cells."""
        pool = self._forecast.pool
        start_s = pool.from_here(pool.start_s)
        return np.array([start_s - pool.from_here(pool.start_low_s), pool.from_here(pool.start_high_s) - start_s])

    @cached_property
    def _work(self) -> Floats:
        """The deviations of the work, over the cells."""
        forecast = self._forecast
        faster_s, slower_s = forecast.work_range_s
        work_s = forecast.mid.run_s - forecast.mid.losses * forecast.setback_s
        return np.array([work_s - faster_s, slower_s - work_s])

    @cached_property
    def _billed(self) -> Floats:
        """The deviations of the billed time, over the cells."""
        return np.hypot(self._work, self._start)

    @property
    def _trained(self) -> Floats:
        """The deviations of the time until the work is done, over the cells."""
        return self._billed if self._forecast.transition_costs.waits else self._work

    @cached_property
    def expected(self) -> tuple[Floats, Floats]:
        """(nano-USD, seconds) over the rows, expected for going there from the job's present place. The cost is not
        capped at the budget."""
        if self._limits.left_s is None:
            return self._cost, self._forecast.mid.seconds + self._lost.away_s
        return self._cost + self._sold * self._bought[1], self._in_time(*self._alone)

    @cached_property
    def _cost(self) -> Floats:
        """The expected cost without a deadline, over the rows."""
        return self._forecast.mid.cost + self._lost.elsewhere

    @cached_property
    def _sold(self) -> Floats:
        """The additional cost of the job if all of it runs on demand, over the rows; 0 for on-demand rows."""
        sold: Floats = np.maximum(self._limits.bought_cost - self._cost, 0) * self._forecast.pool.spot
        return sold

    @cached_property
    def _alone(self) -> tuple[Floats, Floats, Floats]:
        """(expected seconds without a deadline, how much earlier it may be, how much later), over the rows."""
        return self._forecast.mid.seconds + self._lost.away_s, *self._off(self._trained, self._lost.seconds)

    def _after_waiting(self, wait_s: Floats) -> tuple[Floats, Floats, Floats]:
        """As `_alone`, after an expected wait of `wait_s`."""
        extra = self._lost.seconds
        extra = Moments(extra.mean + wait_s, extra.variance + wait_s**2 * (1 + 1 / self._lost.outages_known))
        return self._alone[0] + wait_s, *self._off(self._trained, extra)

    def _off(self, deviations: Floats, extra: Moments) -> tuple[Floats, Floats]:
        """Deviations over the cells, combined with those of `extra` over the rows; the result is over the rows."""
        earlier, later = extra.deviations
        over = self._forecast.over_rows
        return np.hypot(over(deviations[0]), earlier), np.hypot(over(deviations[1]), later)

    def _in_time(self, alone_s: Floats, early: Floats, late: Floats) -> Floats:
        """The expected seconds, if the job rents on-demand in time for all work that would not be done at the end."""
        spared_s = _excess(alone_s - self._limits.end_s, early / Z95, late / Z95)
        return np.where(self._forecast.pool.spot, np.maximum(alone_s - spared_s, 0), alone_s)

    def going(self, rivals: Bools, wait_s: Floats | None = None) -> Spread:
        """The spread of going there from the job's present place, after the expected wait of `wait_s` (over the rows)
        for capacity.

        `rivals` are rows that may be chosen instead if prices change: the job may then finish as early as on the
        fastest.
        """
        mid, cost = self._forecast.mid, self._cost
        down, up, dear = self._costs(cost, mid.billed_s)
        alone_s, early, late = self._alone if wait_s is None else self._after_waiting(wait_s)
        low_s, mid_s, high_s = np.maximum(alone_s - early, 0), alone_s, alone_s + late
        spot, left_s = self._forecast.pool.spot, time_left_s(self._forecast.demand, self._forecast)
        if left_s is not None and self._limits.waits:
            high_s = np.where(spot, np.maximum(high_s, left_s), high_s)
        if self._limits.left_s is not None:
            mid_s = self.expected[1] if wait_s is None else self._in_time(alone_s, early, late)
            last_s = np.where(spot, max(self._limits.left_s, self._limits.bought_s), np.inf)
            low_s, high_s = np.minimum(low_s, mid_s), np.maximum(np.minimum(high_s, last_s), mid_s)
            (low_share, mid_share, high_share), sold = self._bought, self._sold
            cost = cost + sold * mid_share
            down, up = np.hypot(down, sold * (mid_share - low_share)), np.hypot(up, sold * (high_share - mid_share))
        if rivals.any():
            low_s = np.minimum(low_s, _soonest(mid.cost, mid_s, mid.cost * dear, rivals))
        dearest = self._payable(mid.cost, cost + up)
        if self._limits.short_of_money and self._limits.left_cost is not None:
            dearest = np.where(spot & (mid.cost <= self._limits.left_cost), self._limits.left_cost, dearest)
        cost = self._payable(mid.cost, cost)
        return Spread(np.maximum(low_s, 0), mid_s, high_s, np.maximum(cost - down, 0), cost, dearest)

    @cached_property
    def _bought(self) -> tuple[Floats, Floats, Floats]:
        """(5th percentile, expected, 95th percentile) of the share of the work that runs on demand because, even
        without waiting, there is not enough time."""
        bought_s, end_s, seconds = self._limits.bought_s, self._limits.end_s, self._forecast.mid.seconds
        early, late = self._off(self._trained, self._lost.billed)

        def share(excess_s: Floats, at_s: Floats) -> Floats:
            whole_s = np.maximum(np.maximum(at_s, end_s) - bought_s, 1.0)
            return np.minimum(np.maximum(excess_s / whole_s, 0), 1)  # faster than np.clip

        low, high = (share(np.maximum(each - end_s, 0), each) for each in (seconds - early, seconds + late))
        mid = share(_excess(seconds - end_s, early / Z95, late / Z95), seconds)
        return low, np.minimum(np.maximum(mid, low), high), high

    def _payable(self, alone: Floats, cost: Floats) -> Floats:
        """The part of `cost` that is paid: if the budget covers the offer `alone`, at most the remaining budget."""
        left = self._limits.left_cost
        return cost if left is None else np.where(alone <= left, np.minimum(cost, left), cost)

    def afresh(self) -> Spread:
        """The spread of starting there without a running machine (Forecast.afresh)."""
        forecast, lost = self._forecast, self._lost
        seconds, cost = forecast.afresh()
        cost, mid_s = cost + lost.elsewhere, seconds + lost.away_s
        down, up, _ = self._costs(cost, forecast.mid.run_s + forecast.pool.startup_s)
        known = forecast.transition_costs.waits  # nothing trains while a machine starts, here or there
        early, late = self._alone[1:] if known else self._off(self._billed, lost.seconds)
        return Spread(np.maximum(mid_s - early, 0), mid_s, mid_s + late, np.maximum(cost - down, 0), cost, cost + up)

    def _costs(self, cost: Floats, billed_s: Floats) -> tuple[Floats, Floats, Floats]:
        """(the deviation of an expected cost downwards, the deviation upwards, the highest price as a multiple of the
        expected one)."""
        pool, price_s, seconds = self._forecast.pool, self._forecast.mid.price_s, self._forecast.over_rows(billed_s)
        share = self._billed / np.maximum(billed_s, 1e-9)
        longer = np.log(np.array([np.maximum(1 - share[0], 1e-3), 1 + share[1]]))
        prices = pool.ahead.range(billed_s, pool.cell)
        squares = pool.over_rows(longer) ** 2 + np.log(prices) ** 2
        expected = cost
        if pool.drift is not None:
            # The expected cost counts an old price one standard deviation higher; the interval is around the price.
            squares += (Z95 * pool.drift) ** 2
            expected_s, price_s = price_s, price_s * np.exp(-pool.drift)
            expected = cost - (expected_s - price_s) * seconds
        machine, (down, up) = price_s * seconds, np.sqrt(squares)
        fewer, more = self._lost.cost.deviations
        low = np.hypot(machine * np.expm1(-down), fewer)
        high = np.hypot(machine * np.expm1(up), more)
        return low + (cost - expected), np.maximum(high - (cost - expected), 0), prices[1]


def _excess(mean: Floats, below: Floats, above: Floats) -> Floats:
    """E[max(X, 0)] of a normal X. Its standard deviation is `above` if the mean is negative, else `below`."""
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
