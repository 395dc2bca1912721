"""Room to move: where a running job may move within its rent limits.

Its machine stays rented until the new one has taken over, so the limits must have room for both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market
from orchestrator.policy.demand import NO_RENT_LIMITS, Demand
from orchestrator.policy.ranking.pool import Rows


def may_have_beside(demand: Demand, market: Market, current: int | None, rows: Rows) -> NDArray[np.bool_]:
    """Which of `rows` the job may rent while it has the machine of row `current`. This always includes the current row.
    Without a current row (None), it may rent all."""
    if current is None or demand.rent is NO_RENT_LIMITS:
        return np.ones(len(rows), np.bool_)
    both = market.price[rows] + market.price[current]
    room: NDArray[np.bool_] = (both <= demand.rent.nano_usd_per_hour) & (2 * demand.nodes <= demand.rent.machines)
    room |= rows == current
    return room
