"""Renting: what the rest of a budget must cover before a machine is rented, even if the rest of the job is short.

This is the transfer of the checkpoint, the minimum billed time, and the reserve for a checkpoint and the end of the
machine. The control plane rents no machine for less (engine.billing.spending_limits), so an offer that needs more is
rejected (limits.py), and a budget below the least of all offers is not enough to start (enough.py).

Columns are over the rows of the forecast's pool.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.demand import Demand, Floats
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.routes import by_provider


def least_left(demand: Demand, forecast: Forecast) -> Floats:
    """If the remaining budget is less than this (whole nano-USD), an offer is rejected: no machine is rented there or,
    if the job's cost is known, it costs more even at the 5th percentile."""
    left: Floats = np.floor(rent_and_reserve(demand, forecast)) + 1
    return np.maximum(left, np.ceil(forecast.low.cost)) if forecast.known else left


def rent_and_reserve(demand: Demand, forecast: Forecast) -> Floats:
    """nano-USD: a machine is rented only if the remaining budget exceeds this. -1 where the job already has a
    machine."""
    pool, spent = forecast.pool, demand.spent_nano_usd
    # The price is that at which the machine is rented, and no step has begun.
    reserve, step_s = replace(demand.reserve, unheard_s=0.0, step_s=0.0), np.zeros(len(pool.rows))
    found: Floats = reserve.with_reserve(spent + to_rent(demand, forecast), pool.price_s, step_s, pool.spot) - spent
    for row in (pool.current, pool.target):
        if row is not None:
            found[pool.at(row)] = -1.0
    return found


def to_rent(demand: Demand, forecast: Forecast) -> Floats:
    """nano-USD, without the reserve: transferring the checkpoint, and the minimum billed time, during which a spot
    price may double."""
    pool, market = forecast.pool, forecast.pool.market
    failed = by_provider(market, lambda card: card.failed_launch_nano_usd)
    shortest_s, failed = (pool.over_rows(each[pool.site]) for each in (forecast.transition_costs.minimum_s, failed))
    least, release = np.maximum(shortest_s * pool.price_s, failed), demand.reserve.release_s * pool.price_s
    found: Floats = pool.over_rows(forecast.move_fixed) + promised_by_start(least, release, pool.spot)
    return found


def promised_by_start(
    least: Floats | int, release: Floats | int, spot: NDArray[np.bool_] | bool
) -> NDArray[np.float64 | np.int64]:
    """The cost of a starting machine in addition to `release`, the cost of ending it, however soon it ends (nano-USD).
    It is billed for at least `least`, and the price of a spot machine may double meanwhile."""
    return np.where(spot, np.maximum(least, 2 * least - release), least)
