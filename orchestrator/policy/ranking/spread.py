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


def spread(forecast: Forecast, rivals: Bools | None = None, *, afresh: bool = False) -> Spread:
    """The spread of going there from where the job is, or (`afresh`) of starting there from nowhere (Forecast.afresh).
    `rivals` are rows that may be chosen instead if prices change: the job may then finish as soon as on the fastest."""
    pool, mid = forecast.pool, forecast.mid
    start_s = pool.from_here(pool.start_s)
    seconds = mid.run_s + start_s if afresh else mid.cell_seconds
    billed_s = seconds if afresh else mid.billed_s
    faster_s, slower_s = forecast.work_range_s
    losses = mid.losses
    often = Z95 * np.sqrt(losses + losses**2 / pool.losses_known)
    most, least = losses + often, np.maximum(losses - often, 0)
    work = (mid.run_s - losses * forecast.setback_s, faster_s, slower_s)
    lost = ((losses - least) * forecast.setback_s, (most - losses) * forecast.setback_s)
    start = (start_s - pool.from_here(pool.start_low_s), pool.from_here(pool.start_high_s) - start_s)
    waits = afresh or forecast.transition_costs.waits
    time = tuple(
        np.sqrt((work[0] - work[side + 1]) ** 2 + lost[side] ** 2 + (start[side] ** 2 if waits else 0.0))
        for side in (0, 1)
    )
    bill = tuple(np.sqrt((work[0] - work[side + 1]) ** 2 + lost[side] ** 2 + start[side] ** 2) for side in (0, 1))
    over, cell = forecast.over_rows, pool.cell
    cost = forecast.afresh(mid)[1] if afresh else mid.cost
    # The expected cost counts an old price one standard deviation higher; here the deviation is around the price.
    price_s = mid.price_s if pool.drift is None else mid.price_s * np.exp(-pool.drift)
    cost = cost - (mid.price_s - price_s) * over(billed_s)
    machine, aged = price_s * over(billed_s), Z95 * (0.0 if pool.drift is None else pool.drift)
    cheap, dear = pool.ahead.range(billed_s, cell)
    billed = np.maximum(billed_s, 1e-9)
    shorter, longer = np.maximum(1 - bill[0] / billed, 1e-3), 1 + bill[1] / billed
    per_loss = forecast.transition_costs.per_loss[pool.site]
    low = cost + machine * np.expm1(-_together(over(np.log(shorter)), np.log(cheap), aged))
    high = cost + machine * np.expm1(_together(over(np.log(longer)), np.log(dear), aged))
    low, high = low - over((losses - least) * per_loss), high + over((most - losses) * per_loss)
    low_s = over(seconds - time[0])
    if rivals is not None and rivals.any():
        low_s = np.minimum(low_s, _soonest(cost, over(seconds), cost * dear, rivals))
    return Spread(np.maximum(low_s, 0), over(seconds + time[1]), np.maximum(low, 0), high)


def _together(*deviations: Floats | float) -> Floats:
    """The log deviation of a product whose factors deviate independently by these logarithms."""
    whole: Floats = np.sqrt(sum(np.square(each) for each in deviations))
    return whole


def _soonest(cost: Floats, seconds: Floats, most: Floats, rivals: Bools) -> Floats:
    """Over the rows, the time of the fastest rival that costs at most `most`; the row's own if there is none."""
    positions = np.flatnonzero(rivals)
    order = positions[np.argsort(cost[positions], kind="stable")]
    fastest = np.minimum.accumulate(seconds[order])
    among = np.searchsorted(cost[order], most, side="right") - 1
    return np.where(among >= 0, np.minimum(fastest[among], seconds), seconds)
