"""Spread: the 5th and 95th percentile of cost and time to finish on each offer, as plans show them.

Independently uncertain are: the speed, the share of time that checkpoints take, the first start, the number of
preemptions (Poisson with a rate known from few losses: negative binomial), and the future price of a spot machine.
Deviations from the expected value therefore add up as squares, separately on either side (Barlow 2003, "Asymmetric
errors"); adding all worst cases would be far too wide. Cost is price times time, so there the deviations of the
logarithms add up.

How far prices deviate comes from `orchestrator.market.reversion`, and the effect of their age from `ageing`. Limits are
checked against `Forecast.high`, which is stricter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.ranking.cost import Z95, Floats, Forecast

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """5th and 95th percentiles over the rows of a forecast, in market seconds and nano-USD."""

    low_s: Floats
    high_s: Floats
    low_cost: Floats
    high_cost: Floats


class Spreads:
    """The spreads of one forecast. Each pair of deviations from the expected value is first for the better, then for
    the worse."""

    def __init__(self, forecast: Forecast) -> None:
        pool, mid = forecast.pool, forecast.mid
        losses = mid.losses
        often = Z95 * np.sqrt(losses + losses**2 / pool.losses_known)
        lost = np.array([np.minimum(losses, often), often])
        faster_s, slower_s = forecast.work_range_s
        work_s = mid.run_s - losses * forecast.setback_s
        start_s = pool.from_here(pool.start_s)
        start = np.array([start_s - pool.from_here(pool.start_low_s), pool.from_here(pool.start_high_s) - start_s])
        squares = np.array([work_s - faster_s, slower_s - work_s]) ** 2 + (lost * forecast.setback_s) ** 2
        self._forecast = forecast
        self._billed = np.sqrt(squares + start**2)
        self._trained = self._billed if forecast.transition_costs.waits else np.sqrt(squares)
        self._afresh_s = mid.run_s + start_s
        self._losses = (lost * forecast.transition_costs.per_loss[pool.site])[:, pool.cell]

    def going(self, rivals: Bools) -> Spread:
        """The spread of going there from where the job is. `rivals` are rows that may be chosen instead if prices
        change: the job may then finish as soon as on the fastest."""
        mid, over = self._forecast.mid, self._forecast.over_rows
        low_cost, high_cost, cost, dear = self._costs(mid.cost, mid.billed_s)
        low_s, high_s = (over(mid.cell_seconds + each) for each in (-self._trained[0], self._trained[1]))
        if rivals.any():
            low_s = np.minimum(low_s, _soonest(cost, mid.seconds, cost * dear, rivals))
        return Spread(np.maximum(low_s, 0), high_s, low_cost, high_cost)

    def afresh(self) -> Spread:
        """The spread of starting there from nowhere (Forecast.afresh)."""
        forecast, over = self._forecast, self._forecast.over_rows
        low_cost, high_cost, _, _ = self._costs(forecast.afresh(forecast.mid)[1], self._afresh_s)
        low_s, high_s = over(self._afresh_s - self._billed[0]), over(self._afresh_s + self._billed[1])
        return Spread(np.maximum(low_s, 0), high_s, low_cost, high_cost)

    def _costs(self, cost: Floats, billed_s: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """(lowest cost, highest cost, expected cost at the known prices, highest price as a multiple of the expected
        one)."""
        pool, price_s, seconds = self._forecast.pool, self._forecast.mid.price_s, self._forecast.over_rows(billed_s)
        share = self._billed / np.maximum(billed_s, 1e-9)
        longer = np.log(np.array([np.maximum(1 - share[0], 1e-3), 1 + share[1]]))[:, pool.cell]
        prices = pool.ahead.range(billed_s, pool.cell)
        squares = longer**2 + np.log(prices) ** 2
        if pool.drift is not None:
            # The expected cost counts an old price one standard deviation higher; here the deviation is around it.
            squares += (Z95 * pool.drift) ** 2
            expected_s, price_s = price_s, price_s * np.exp(-pool.drift)
            cost = cost - (expected_s - price_s) * seconds
        machine, (down, up) = price_s * seconds, np.sqrt(squares)
        low, high = cost + machine * np.expm1(-down), cost + machine * np.expm1(up)
        return np.maximum(low - self._losses[0], 0), high + self._losses[1], cost, prices[1]


def _soonest(cost: Floats, seconds: Floats, most: Floats, rivals: Bools) -> Floats:
    """Over the rows, the time of the fastest rival that costs at most `most`; the row's own if there is none."""
    positions = np.flatnonzero(rivals)
    order = positions[np.argsort(cost[positions], kind="stable")]
    fastest = np.minimum.accumulate(seconds[order])
    among = np.searchsorted(cost[order], most, side="right") - 1
    return np.where(among >= 0, np.minimum(fastest[among], seconds), seconds)
