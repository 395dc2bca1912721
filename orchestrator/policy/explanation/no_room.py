"""No room: the texts for a job that stays because its limits leave no room for a second machine during a move."""

from __future__ import annotations

from orchestrator.market import Market
from orchestrator.policy.demand import Demand
from providers.money import whole_usd

REMEDY = "raise the limit, or pause and resume the job"


def why_no_room(demand: Demand, market: Market, row: int, current: int) -> str:
    """Which limit does not allow the machines of `row` while the job still has those of `current`."""
    rent, nodes = demand.rent, demand.nodes
    if 2 * nodes > rent.machines:
        return f"a move needs {2 * nodes} machines at once, but {rent.machines_by} is {rent.machines}"
    both = int(market.price[row] + market.price[current])
    return (
        f"a move needs both machines at once, and {whole_usd(both)}/h is more than {rent.rate_by} "
        f"({whole_usd(round(rent.nano_usd_per_hour))})"
    )
