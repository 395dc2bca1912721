"""TransitionCosts: the cost of getting to a site and being there, in addition to the machine's price, over the sites.

This includes egress of the checkpoint (policy.ranking.routes) and of the data, requests, storage of checkpoints, and
the minimum billed time. A job's data names a cloud but no region: within that cloud, it is assumed to be in the region
of the machine. The amounts come from providers.billing.charges, which the ledger uses as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market
from orchestrator.policy.demand import Demand, Running
from orchestrator.policy.ranking.routes import Routes, by_provider, egress, location_of
from providers.billing.charges import GB, MONTH_MS, disk_nano_usd, storage_nano_usd

Floats = NDArray[np.float64]

LINK_BYTES_PER_S = 125e6  # 1 Gbit/s between regions
_MONTH_S = MONTH_MS / 1000


@dataclass(frozen=True, eq=False)
class TransitionCosts:
    """Columns over the sites of a listing, in market seconds and nano-USD.

    For getting there, in addition to starting the machine: `begin_s` without training, and `fixed` = `egress` (with its
    requests) + `double` (the old machine, and the new one's disk and storage, billed during `begin_s`). For being
    there: `upkeep_s` per second (of which `storage_s` for the disk and checkpoint storage) and `per_loss` for each lost
    machine. A machine is billed for at least `minimum_s`.
    """

    begin_s: Floats
    egress: Floats
    double: Floats
    storage_s: Floats
    upkeep_s: Floats
    per_loss: Floats
    minimum_s: Floats
    waits: bool  # whether nothing trains while the machine starts

    @property
    def fixed(self) -> Floats:
        """nano-USD for getting there, in addition to the machine's price."""
        return self.egress + self.double


def transition_costs(
    demand: Demand, market: Market, running: Running | None, current: int | None, interval_s: float
) -> TransitionCosts:
    """The transition costs of a job. `current` is the row where it runs and could stay; `interval_s` is the time
    between saves."""
    listing, spec = market.listing, demand.job.spec
    source = None if running is None else market.row(running.offer_id)
    place = demand.checkpoint_at if source is None else market.place(source)
    routes = Routes(demand, market)
    bucket = routes.bucket
    size = demand.checkpoint_bytes if demand.started or running is not None else 0

    none: Floats = np.zeros(len(listing.sites))
    fetching, transfer_s = none, none
    if place is not None and size:
        fetching = routes.to_sites(place, size)
        transfer_s = routes.crossing(place).astype(np.float64) * (size / LINK_BYTES_PER_S)
    data = none
    for item in spec.data:
        lies_at = location_of(item.source)
        if lies_at is not None and item.size_bytes:
            data = data + egress(market.rates_from(lies_at), item.size_bytes)
    nodes = spec.resources.nodes
    disk_s = nodes * by_provider(market, lambda card: disk_nano_usd(card, 0, MONTH_MS) / _MONTH_S)
    storage_s, uploads_s, restore = disk_s, none, none
    if demand.checkpoint_bytes:
        stored = demand.checkpoint_bytes * spec.checkpoint.most_kept
        kept_s = by_provider(market, lambda card: storage_nano_usd(card, [(0, stored)], 0, MONTH_MS) / _MONTH_S)
        storage_s = disk_s + kept_s
        if bucket is not None:
            counts = routes.through_bucket if spec.checkpoint.to is None else np.ones(len(listing.sites))
            uploads_s = counts * market.rates_to(bucket) * demand.checkpoint_bytes / GB / interval_s
            restore = counts * egress(market.rates_from(bucket), demand.checkpoint_bytes)

    if current is None:
        begin_s = transfer_s
        double = storage_s * begin_s
    else:
        begin_s = demand.gap_s + transfer_s
        double = begin_s * float(max(market.price[current], 0)) / 3600 + storage_s * begin_s
    upkeep_s, per_loss = storage_s + uploads_s, data + restore
    minimum = by_provider(market, lambda card: card.minimum_ms / 1000)
    return TransitionCosts(
        begin_s=begin_s,
        egress=fetching + data,
        double=double,
        storage_s=storage_s,
        upkeep_s=upkeep_s,
        per_loss=per_loss,
        minimum_s=minimum,
        waits=current is None,
    )
