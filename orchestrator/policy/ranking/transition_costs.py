"""TransitionCosts: what it costs to get to a site and be there, besides the machine's price, over the sites.

Egress of the checkpoint and the data, requests, storage of checkpoints, the minimum billed time. Checkpoints are in the
bucket of `checkpoint.to` or of the store, else where the last machine was. A job's data and bucket name a cloud but no
region: within that cloud they are assumed to be where the machine is, or was that saved last. The amounts come from
providers.billing.charges, which the ledger uses as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Location, Market
from orchestrator.policy.demand import Demand, Running
from providers.billing.charges import (
    GB,
    MONTH_MS,
    RateCard,
    checkpoint_objects,
    crosses,
    disk_nano_usd,
    egress_nano_usd,
    object_nano_usd,
    rate_card,
    storage_nano_usd,
)

Floats = NDArray[np.float64]

LINK_BYTES_PER_S = 125e6  # 1 Gbit/s between regions
_MONTH_S = MONTH_MS / 1000
_CLOUD_OF_SCHEME = {"s3": "aws", "gs": "gcp", "gcs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure"}


@dataclass(frozen=True, eq=False)
class TransitionCosts:
    """Columns over the sites of a listing, in market seconds and nano-USD.

    Getting there, besides starting the machine: `begin_s` without training, and `fixed` = `egress` (with its requests)
    + `double` (the old machine and the new one's disk and storage, billed meanwhile). Being there: `upkeep_s` per
    second (of which `storage_s` for the disk and checkpoint storage) and `per_loss` for each lost machine. A machine is
    billed for at least `minimum_s`.
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
        """nano-USD for getting there, besides the machine's price."""
        return self.egress + self.double


def transition_costs(
    demand: Demand, market: Market, running: Running | None, current: int | None, interval_s: float
) -> TransitionCosts:
    """The transition costs of a job. `current` is the row where it runs and could stay; `interval_s` between saves."""
    listing, spec = market.listing, demand.job.spec
    source = None if running is None else market.row(running.offer_id)
    place = demand.checkpoint_at if source is None else market.place(source)
    bucket = location_of(spec.checkpoint.to or demand.store_root)
    real = np.zeros(0, np.bool_) if bucket is None else _real(market)
    if place is not None and location_of(spec.checkpoint.to or "") is not None:
        place = place[:2]  # a bucket is equally close to every zone of its region
    size = demand.checkpoint_bytes if demand.started or running is not None else 0
    rates = market.rates_from

    none = np.zeros(len(listing.sites))
    egress, transfer_s = none, none
    if place is not None and size:
        egress = egress_to_sites(market, place, size)
        elsewhere = np.array([each != place[:2] for each in listing.regions])
        if bucket is not None and bucket[0] != place[0]:  # it is fetched from there, and not from where it was saved
            egress = np.where(real, _egress(rates(bucket), size), egress)
            elsewhere |= real & np.array([each[0] != bucket[0] for each in listing.regions])
        transfer_s = elsewhere * (size / LINK_BYTES_PER_S)
    data = none
    for item in spec.data:
        lies_at = location_of(item.source)
        if lies_at is not None and item.size_bytes:
            data = data + _egress(rates(lies_at), item.size_bytes)
    nodes = spec.resources.nodes
    disk_s = nodes * _by_provider(market, lambda card: disk_nano_usd(card, 0, MONTH_MS) / _MONTH_S)
    storage_s, uploads_s, restore = disk_s, none, none
    if demand.checkpoint_bytes:
        stored = demand.checkpoint_bytes * spec.checkpoint.keep
        kept_s = _by_provider(market, lambda card: storage_nano_usd(card, [(0, stored)], 0, MONTH_MS) / _MONTH_S)
        storage_s = disk_s + kept_s
        if bucket is not None:
            counts = real if spec.checkpoint.to is None else np.ones(len(listing.sites))
            uploads_s = counts * market.rates_to(bucket) * demand.checkpoint_bytes / GB / interval_s
            restore = counts * _egress(rates(bucket), demand.checkpoint_bytes)

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


def egress_to_sites(market: Market, place: Location, size_bytes: int) -> Floats:
    """nano-USD for moving a checkpoint from a location to each site."""
    source = rate_card(place[0])
    requests = _requests(market, place, size_bytes, lambda target: object_nano_usd(source, target))
    return _egress(market.rates_from(place), size_bytes) + requests


def egress_from_sites(market: Market, place: Location, size_bytes: int) -> Floats:
    """nano-USD for moving a checkpoint from each site to a location."""
    target = rate_card(place[0])
    requests = _requests(market, place, size_bytes, lambda source: object_nano_usd(source, target))
    return _egress(market.rates_to(place), size_bytes) + requests


def _real(market: Market) -> NDArray[np.bool_]:
    """Whether each site is of a real cloud. Simulated clouds bill copies from machine to machine, whatever store they
    are in."""
    simulated = market.listing.simulated_providers
    return np.array([each[0] not in simulated for each in market.listing.sites], np.bool_)


def location_of(url: str) -> Location | None:
    """The cloud of a bucket URL, with an unknown region; None if it is not a cloud bucket."""
    cloud = _CLOUD_OF_SCHEME.get(url.partition("://")[0].lower()) if "://" in url else None
    return None if cloud is None else (cloud, "")


def _egress(rates: Floats, size_bytes: int) -> Floats:
    """nano-USD for moving bytes once, over the sites. Few sites differ in their rate."""
    by_site = rates.tolist()
    amounts = {rate: egress_nano_usd(int(rate), size_bytes) for rate in set(by_site)}
    return np.array([amounts[rate] for rate in by_site], np.float64)


def _requests(market: Market, place: Location, size_bytes: int, of_object: Callable[[RateCard], int]) -> Floats:
    """nano-USD for the requests that copy a checkpoint between a location and each site, if one object costs
    `of_object` there."""
    return _apart(place, market.listing.regions) * _by_provider(market, of_object) * checkpoint_objects(size_bytes)


@lru_cache(maxsize=256)
def _apart(place: Location, regions: tuple[Location, ...]) -> Floats:
    """1 for each region to which a copy from a location is charged as one that leaves it, else 0."""
    return np.array([crosses(place, region) for region in regions], np.float64)


def _by_provider(market: Market, of: Callable[[RateCard], float]) -> Floats:
    return np.array([of(rate_card(name)) for name in market.listing.providers])[market.listing.site_provider]
