"""Routes: how a job's checkpoints get from the machine that saves them to the machine that restores them, and the cost.
Staying, moving, returning and continuing after a loss all use this rule.

If there is a bucket (the job's `checkpoint.to`, or else `store_root`), machines of real clouds save to it and restore
from it. Otherwise, and on simulated clouds unless the job names a bucket, checkpoints go from machine to machine. The
amounts come from providers.billing.charges, which the ledger uses as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import OWN_STORE, Location, Market, fetched_from, rate_between
from orchestrator.policy.demand import Demand
from providers.billing.charges import RateCard, checkpoint_objects, crosses, egress_nano_usd, object_nano_usd, rate_card

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]

_CLOUD_OF_SCHEME = {"s3": "aws", "gs": "gcp", "gcs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure"}


class Routes:
    """The routes of one job's checkpoints in a market. `bucket` is the location of the bucket that keeps them; None:
    they stay where the last machine was."""

    def __init__(self, demand: Demand, market: Market) -> None:
        own = demand.job.spec.checkpoint.to
        self.bucket = location_of(own or demand.store_root, demand.bucket_region)
        self._market, self._own = market, own is not None and self.bucket is not None

    @property
    def through_bucket(self) -> Bools:
        """Whether a machine at each site restores from the bucket."""
        if self.bucket is None:
            return np.zeros(len(self._market.listing.sites), np.bool_)
        return _real(self._market)

    def rates_from(self, place: Location) -> Floats:
        """nano-USD per GB for restoring, at each site, a checkpoint that was last saved at `place`."""
        market = self._market
        direct = market.rates_from(self._direct(place))
        if self.bucket is None:
            return direct
        return np.where(self.through_bucket, market.rates_from(fetched_from(self.bucket, place)), direct)

    def rates_to(self, place: Location) -> Floats:
        """nano-USD per GB for restoring, at `place`, a checkpoint that was last saved at each site."""
        market = self._market
        if self.bucket is None or place[0] in market.listing.simulated_providers:
            return market.rates_to(self._direct(place))
        if self.bucket[1]:
            return np.full(len(market.listing.sites), float(rate_between(market.tariff, self.bucket, place)))
        here = np.array([each[0] == self.bucket[0] for each in market.listing.sites], np.bool_)
        return np.where(here, market.rates_to(place[:2]), float(rate_between(market.tariff, self.bucket, place)))

    def to_sites(self, place: Location, size_bytes: int, sites: Rows | slice = slice(None)) -> Floats:
        """nano-USD for restoring, at each of the `sites`, a checkpoint that was last saved at `place`: egress and
        requests."""
        source = rate_card(place[0])
        requests = self._requests(self._direct(place), size_bytes, lambda target: object_nano_usd(source, target))
        if self.bucket is not None:
            requests = np.where(self.through_bucket, 0.0, requests)
        return egress(self.rates_from(place)[sites], size_bytes) + requests[sites]

    def from_sites(self, place: Location, size_bytes: int) -> Floats:
        """nano-USD for restoring, at `place`, a checkpoint that was last saved at each site: egress and requests."""
        target = rate_card(place[0])
        found = egress(self.rates_to(place), size_bytes)
        if self.bucket is not None and place[0] not in self._market.listing.simulated_providers:
            return found
        requests = self._requests(self._direct(place), size_bytes, lambda source: object_nano_usd(source, target))
        return found + requests

    def crossing(self, place: Location) -> Bools:
        """Whether a checkpoint that was last saved at `place` comes to each site from another region."""
        regions = self._market.listing.regions
        direct = np.array([each != place[:2] for each in regions], np.bool_)
        if self.bucket is None:
            return direct
        source = fetched_from(self.bucket, place)
        return np.where(self.through_bucket, np.array([crosses(source, each) for each in regions], np.bool_), direct)

    def _direct(self, place: Location) -> Location:
        """The location of a checkpoint that goes from machine to machine or, on simulated clouds, into the job's
        bucket."""
        return place[:2] if self._own else place  # a bucket is equally close to every zone of its region

    def _requests(self, place: Location, size_bytes: int, of_object: Callable[[RateCard], int]) -> Floats:
        """nano-USD for the requests that copy a checkpoint between a location and each site. `of_object` is the price
        of one object by the site's rate card."""
        apart = _apart(place, self._market.listing.regions)
        return apart * by_provider(self._market, of_object) * checkpoint_objects(size_bytes)


def location_of(url: str, region: str | None = "") -> Location | None:
    """The location of a bucket: its cloud, and its region as far as it is known. OWN_STORE if `region` is None; None if
    `url` is not the URL of a bucket."""
    cloud = _CLOUD_OF_SCHEME.get(url.partition("://")[0].lower()) if "://" in url else None
    if cloud is None:
        return None
    return OWN_STORE if region is None else (cloud, region)


def egress(rates: Floats, size_bytes: int) -> Floats:
    """nano-USD for moving bytes once, over the sites. Computed once per distinct rate, because few sites differ."""
    by_site = rates.tolist()
    amounts = {rate: egress_nano_usd(int(rate), size_bytes) for rate in set(by_site)}
    return np.array([amounts[rate] for rate in by_site], np.float64)


def by_provider(market: Market, of: Callable[[RateCard], float]) -> Floats:
    """Over the sites: the value of `of` for the rate card of the site's provider."""
    return np.array([of(rate_card(name)) for name in market.listing.providers])[market.listing.site_provider]


def _real(market: Market) -> Bools:
    """Whether each site belongs to a real cloud. Simulated clouds bill copies from machine to machine, regardless of
    the store that the checkpoints are in."""
    simulated = market.listing.simulated_providers
    return np.array([each[0] not in simulated for each in market.listing.sites], np.bool_)


@lru_cache(maxsize=256)
def _apart(place: Location, regions: tuple[Location, ...]) -> Floats:
    """1 for each region to which a copy from `place` is charged as leaving its region, else 0."""
    return np.array([crosses(place, region) for region in regions], np.float64)
