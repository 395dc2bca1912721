"""TransitionCosts: what getting to a site and being there costs besides the machine's price, by site.

Egress of the checkpoint and of the data, the requests for it, storage of checkpoints, the shortest time that is billed.
Data and bucket of a job name a cloud and no region: within that cloud they are taken to lie where the machine is.
providers.charges says what each charge comes to, as it does for the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Location, Market
from orchestrator.policy.demand import Demand, Running
from providers.charges import (
    GB,
    MONTH_MS,
    RateCard,
    disk_nano_usd,
    egress_nano_usd,
    rate_card,
    requests_nano_usd,
    storage_nano_usd,
)

Floats = NDArray[np.float64]

LINK_BYTES_PER_S = 125e6  # 1 Gbit/s between regions
_MONTH_S = MONTH_MS / 1000
_CLOUD_OF_SCHEME = {"s3": "aws", "gs": "gcp", "gcs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure"}


@dataclass(frozen=True, eq=False)
class TransitionCosts:
    """Columns over the sites of a listing; seconds and nano-USD.

    To get there, besides the start of the machine: `begin_s` without training, `fixed` = `egress` (with its
    requests) + `double` (the old machine and the new one's disk and room, billed meanwhile). Once there:
    `upkeep_s` per second (`storage_s` of it for the disk and the room for checkpoints) and `per_loss` for each machine
    that is lost. A machine is billed `minimum_s` at least.
    """

    begin_s: Floats
    egress: Floats
    double: Floats
    storage_s: Floats
    upkeep_s: Floats
    per_loss: Floats
    minimum_s: Floats
    waits: bool  # nothing trains while the machine starts

    @property
    def fixed(self) -> Floats:
        return self.egress + self.double


def transition_costs(
    demand: Demand, market: Market, running: Running | None, current: int | None, interval_s: float
) -> TransitionCosts:
    """The tolls of a job. `current` is the row where it runs and could stay."""
    listing, spec = market.listing, demand.job.spec
    source = None if running is None else market.row(running.offer_id)
    place = demand.checkpoint_at if source is None else market.place(source)
    if place is not None and location_of(spec.checkpoint.to or "") is not None:
        place = place[:2]  # a bucket is reached from every zone of its region alike
    size = demand.checkpoint_bytes if demand.started or running is not None else 0
    rates = market.rates_from

    none = np.zeros(len(listing.sites))
    egress, transfer_s = none, none
    if place is not None and size:
        egress = _way(market, place, size)
        elsewhere = np.array([each != place[:2] for each in listing.regions])
        transfer_s = elsewhere * (size / LINK_BYTES_PER_S)
    data = none
    for item in spec.data:
        lies_at = location_of(item.source)
        if lies_at is not None and item.size_bytes:
            data = data + _egress(rates(lies_at), item.size_bytes)
    disk_s = _by_provider(market, lambda card: disk_nano_usd(card, 0, MONTH_MS) / _MONTH_S)
    storage_s, uploads_s, restore = disk_s, none, none
    if demand.checkpoint_bytes:
        stored = demand.checkpoint_bytes * spec.checkpoint.keep
        kept_s = _by_provider(market, lambda card: storage_nano_usd(card, [(0, stored)], 0, MONTH_MS) / _MONTH_S)
        storage_s = disk_s + kept_s
        bucket = location_of(spec.checkpoint.to or "")
        if bucket is not None:
            uploads_s = market.rates_to(bucket) * demand.checkpoint_bytes / GB / interval_s
            restore = _egress(rates(bucket), demand.checkpoint_bytes)

    if current is None:
        begin_s = transfer_s
        double = storage_s * begin_s
    else:
        begin_s = demand.gap_s + transfer_s
        double = begin_s * float(max(market.price[current], 0)) / 3600 + storage_s * begin_s
    upkeep_s, per_loss = storage_s + uploads_s, data + restore
    minimum = _by_provider(market, lambda card: card.minimum_ms / 1000)
    return TransitionCosts(
        begin_s=begin_s,
        egress=egress + data,
        double=double,
        storage_s=storage_s,
        upkeep_s=upkeep_s,
        per_loss=per_loss,
        minimum_s=minimum,
        waits=current is None,
    )


def _way(market: Market, place: Location, size_bytes: int) -> Floats:
    """nano-USD for bringing a checkpoint from a place to each site."""
    requests = _over_regions(market, lambda there: requests_nano_usd(place, there, size_bytes))
    return _egress(market.rates_from(place), size_bytes) + requests


def way_back(market: Market, place: Location, size_bytes: int) -> Floats:
    """nano-USD for bringing a checkpoint from each site to a place."""
    requests = _over_regions(market, lambda here: requests_nano_usd(here, place, size_bytes))
    return _egress(market.rates_to(place), size_bytes) + requests


def location_of(url: str) -> Location | None:
    """The cloud where a bucket lies, its region unknown; None for what is no bucket of a cloud."""
    cloud = _CLOUD_OF_SCHEME.get(url.partition("://")[0].lower()) if "://" in url else None
    return None if cloud is None else (cloud, "")


def _egress(rates: Floats, size_bytes: int) -> Floats:
    """nano-USD for bytes that are moved once, over the sites; few of them differ in their rate."""
    known, site = np.unique(rates, return_inverse=True)
    return np.array([egress_nano_usd(int(rate), size_bytes) for rate in known.tolist()], np.float64)[site]


def _over_regions(market: Market, of: Callable[[Location], int]) -> Floats:
    """A column over the sites of what depends on their region alone."""
    known = {region: of(region) for region in set(market.listing.regions)}
    return np.array([known[region] for region in market.listing.regions], np.float64)


def _by_provider(market: Market, of: Callable[[RateCard], float]) -> Floats:
    return np.array([of(rate_card(name)) for name in market.listing.providers])[market.listing.site_provider]
