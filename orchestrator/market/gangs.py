"""Gangs: a market in which every offer is several machines at once, for a job that needs them together.

This is the one place where prices and losses of one machine become those of a run. Its speed is that of the job on so
many machines (orchestrator.perf); start-up and the bytes of a checkpoint are those of one.
"""

from __future__ import annotations

import numpy as np

from orchestrator.market.snapshot import Market


def of_machines(market: Market, nodes: int) -> Market:
    """The market for runs on `nodes` machines: n times the price and the usual price, and n times as many losses per
    hour, because the loss of one machine ends the run. Everything else is as it is."""
    if nodes == 1:
        return market
    price, level = (np.where(column >= 0, column * nodes, column) for column in (market.price, market.level))
    hazard = market.hazard * nodes
    return market.with_fields(price=price, level=level, hazard=hazard, older_cells=None, hashed=None)
