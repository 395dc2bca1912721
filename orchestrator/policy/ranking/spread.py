"""Spread: the 5th and 95th percentile of what finishing on each offer costs and takes, as a plan shows them.

What is uncertain, each by itself: the speed, what checkpoints take of the time that they may take, the first start, how
often the machine is taken back (a Poisson number whose rate is known from few losses: a negative binomial one), and
what a spot machine will cost by then. These are independent, so their deviations from what is expected add up as
squares, on either side by themselves (Barlow 2003, "Asymmetric errors"): all worst cases at once would be far too wide.
A cost is price times time, so there the deviations of the logarithms add up.

How far the price strays is the market's (`orchestrator.market.reversion`), and what its age adds (`ageing`). Must not
know: promises, objectives; `Forecast.high` is what promises are measured by, which is stricter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.ranking.cost import Z95, Floats, Forecast

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Over the rows of an outlook: seconds and nano-USD."""

    low_s: Floats
    high_s: Floats
    low_cost: Floats
    high_cost: Floats


def spread(forecast: Forecast, rivals: Bools | None = None, *, afresh: bool = False) -> Spread:
    """Of going there from where the job is; `afresh`: of starting there from nowhere (Forecast.afresh). `rivals` are
    the rows to which it may come, when prices stray, instead: it may be done as soon as on the fastest of them."""
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
    # An old price counts one standard deviation higher in what is expected; what its age adds lies around the price.
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
    """Of a product, whose factors stray independently by these logarithms."""
    whole: Floats = np.sqrt(sum(np.square(each) for each in deviations))
    return whole


def _soonest(cost: Floats, seconds: Floats, most: Floats, rivals: Bools) -> Floats:
    """By row, the time of the fastest of the rivals that cost at most so much; its own if there is none."""
    positions = np.flatnonzero(rivals)
    order = positions[np.argsort(cost[positions], kind="stable")]
    fastest = np.minimum.accumulate(seconds[order])
    among = np.searchsorted(cost[order], most, side="right") - 1
    return np.where(among >= 0, np.minimum(fastest[among], seconds), seconds)
