"""Baseline: the offer that a user would choose without Tradewind. The cost of a plan is compared with its cost."""

from __future__ import annotations

import numpy as np

from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.limits import time_left_s


def baseline(demand: Demand, forecast: Forecast, filtered: Filtered) -> int | None:
    """The market row of the cheapest on-demand offer that meets the constraints; None if there is none.

    Allowed capacity types, back-offs and the budget are ignored. The deadline counts only if some offer meets it, and
    the age of prices only if some price is fresh.
    """
    positions, left_s = filtered.instead_at, time_left_s(demand, forecast)
    if left_s is not None:
        in_time = positions[forecast.afresh_s(forecast.high, positions) <= left_s]
        positions = in_time if in_time.size else positions
    if not positions.size:
        return None
    return int(forecast.pool.rows[positions[np.argmin(forecast.afresh(positions)[1])]])
