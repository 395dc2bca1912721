"""Gangs: converts a market for jobs that need several machines at once: each offer then stands for all the machines of
a run.

This is the only place where the prices and losses of one machine become those of a run. The speed on several machines
is estimated in orchestrator.perf; start-up time and checkpoint size are those of one machine.
"""

from __future__ import annotations

import numpy as np

from orchestrator.market.snapshot import Market


def of_machines(market: Market, nodes: int) -> Market:
    """The market for runs on `nodes` machines; the market itself for one.

    Prices, usual prices and losses per hour are multiplied by `nodes`; losses because the loss of one machine ends the
    run. Everything else stays as it is.
    """
    if nodes == 1:
        return market
    price, level = (np.where(column >= 0, column * nodes, column) for column in (market.price, market.level))
    hazard = market.hazard * nodes
    return market.with_fields(price=price, level=level, hazard=hazard, older_cells=None, hashed=None)
