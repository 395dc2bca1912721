"""What can be rented on AWS now, and at what price: the configured types in the configured regions.

Makes the same requests as the price sources (providers.aws.prices), limited to these types. A region that does not
answer keeps its last offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from providers.aws.prices.on_demand import OnDemandPrices
from providers.aws.prices.spot import SpotPrices
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.clock import Clock
from providers.closed import Closed, refused, without_offers
from providers.collect.facts import PollResult
from providers.errors import ProviderError
from providers.offer import Offer
from providers.price import PricePoint

MOST_AT_ONCE = 8
LISTED_S = 3600.0
"""How long on-demand prices are kept before they are requested again: they change a few times a year."""


class Market:
    """The offers and prices of an account."""

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self._regions, self._clock = settings.regions, clock
        types = settings.instance_types
        self._spot = SpotPrices(backfill_days=0, instance_types=types, connections=connections)
        self._on_demand = OnDemandPrices(instance_types=types, connections=connections)
        self._listed: dict[str, tuple[float, PollResult]] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._types = types
        self._refused: dict[str, ProviderError] = {}

    def offers(self) -> Sequence[Offer]:
        """The offers as of the last request for prices. Raises ProviderError."""
        if not self._offers:
            self.prices(self._clock.now_ms())
        return [offer for region in self._regions for offer in self._offers.get(region, ())]

    def prices(self, since_ms: int) -> Sequence[PricePoint]:
        """All price changes after that time, ascending, preceded by the price of each offer in force then. Raises the
        first error if no region answers."""
        with ThreadPoolExecutor(min(len(self._regions), MOST_AT_ONCE)) as pool:
            polls = list(pool.map(lambda region: self._polled(region, since_ms), self._regions))
        errors: list[ProviderError] = []
        points: list[PricePoint] = []
        for region, results in zip(self._regions, polls, strict=True):
            self._refused.pop(region, None)
            if failed := [result.error for result in results if result.error is not None]:
                errors += failed[:1]
                if not failed[0].retryable:
                    self._refused[region] = failed[0]
                continue
            offers = {offer.id: offer for result in results for offer in result.offers}
            self._offers[region] = tuple(offers[each] for each in sorted(offers))
            points += [point for result in results for point in result.points]
        if len(errors) == len(self._regions):
            raise errors[0]
        return sorted(points, key=lambda point: (point.effective_at_ms, point.offer_id))

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        answered = [region for region in self._regions if region in self._offers and region not in self._refused]
        offers = [offer for region in answered for offer in self._offers[region]]
        found = [refused(region, error) for region, error in sorted(self._refused.items())]
        return found + list(without_offers("aws", answered, self._types, offers, {}))

    def _polled(self, region: str, since_ms: int) -> list[PollResult]:
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        spot = self._spot.poll(region, now_ms, since_ms)
        if region not in self._listed or now_s - self._listed[region][0] >= LISTED_S:
            listed = self._on_demand.poll(region, now_ms, None)
            if listed.error is not None:
                return [spot, listed]
            self._listed[region] = now_s, listed
        return [spot, self._listed[region][1]]
