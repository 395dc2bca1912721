"""What can be rented on Azure now, and at what price: the configured sizes in the configured regions.

Prices are the retail prices (providers.azure.prices); the resource SKUs say what the subscription may start. Prices and
offers apply to a whole region: Azure chooses the zone. A region that does not answer keeps its last offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from providers.azure.prices.retail import RetailPrices
from providers.azure.rows import PROVIDER
from providers.azure.session import Connections, to_provider_error
from providers.azure.settings import Settings
from providers.azure.skus import Sku, barred, rentable
from providers.clock import Clock
from providers.closed import Closed, refused, without_offers
from providers.errors import ProviderError, UnavailableError
from providers.offer import Offer
from providers.price import PricePoint

MOST_AT_ONCE = 8
FRESH_S = 600.0
"""How long prices are kept before they are requested again: Azure changes a spot price at most every few hours."""
LISTED_S = 3600.0
"""How long the SKUs of a region are kept before they are requested again: the answer has several megabytes."""


@dataclass(frozen=True, slots=True)
class _Region:
    offers: tuple[Offer, ...]
    points: tuple[PricePoint, ...]


class Market:
    """The offers and prices of a subscription."""

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self._settings, self._connections, self._clock = settings, connections, clock
        self._skus: dict[str, tuple[float, dict[str, Sku]]] = {}
        self._found: dict[str, tuple[float, _Region]] = {}
        self._barred: dict[str, dict[tuple[str, str], Closed]] = {}
        self._refused: dict[str, ProviderError] = {}

    def offers(self) -> Sequence[Offer]:
        """The offers as of the last request for prices. Raises ProviderError."""
        if not self._found:
            self.prices()
        known = (self._found[region][1] for region in self._settings.regions if region in self._found)
        return [offer for region in known for offer in region.offers]

    def prices(self) -> Sequence[PricePoint]:
        """The present price of each offer. Raises the first error if no region answers."""
        regions = self._settings.regions
        with ThreadPoolExecutor(min(len(regions), MOST_AT_ONCE)) as pool:
            failed = dict(zip(regions, pool.map(self._refreshed, regions), strict=True))
        errors = [each for each in failed.values() if each is not None]
        self._refused = {region: error for region, error in failed.items() if error and not error.retryable}
        if len(errors) == len(regions):
            raise errors[0]
        return [point for region in regions if region in self._found for point in self._found[region][1].points]

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        answered = [each for each in self._settings.regions if each in self._found and each not in self._refused]
        offers = [offer for region in answered for offer in self._found[region][1].offers]
        found = [refused(region, error) for region, error in sorted(self._refused.items())]
        known = {key: each for region in answered for key, each in self._barred.get(region, {}).items()}
        return found + list(without_offers(PROVIDER, answered, self._settings.instance_types, offers, known))

    def skus(self, region: str) -> dict[str, Sku]:
        """The configured sizes that the subscription may start in a region. Raises azure.core's exceptions."""
        now_s = self._clock.monotonic_s()
        if region not in self._skus or now_s - self._skus[region][0] >= LISTED_S:
            rows = list(self._connections.resource_skus(region))
            self._skus[region] = now_s, rentable(rows, self._settings.instance_types)
            self._barred[region] = barred(rows, region, self._settings.instance_types)
        return self._skus[region][1]

    def _refreshed(self, region: str) -> ProviderError | None:
        now_s = self._clock.monotonic_s()
        if region in self._found and now_s - self._found[region][0] < FRESH_S:
            return None
        try:
            skus = self.skus(region)
        except ProviderError as error:
            return error
        except Exception as error:
            return to_provider_error(error) or UnavailableError(f"Azure's SKUs of {region}: {error!r}")
        only = {name: sku.size for name, sku in skus.items()}
        if not only:
            self._found[region] = now_s, _Region((), ())
            return None
        source = RetailPrices(regions=(region,), url=self._settings.prices, only=only)
        result = source.poll(region, self._clock.now_ms(), None)
        if result.error is not None:
            return result.error
        offers = {
            offer.id: offer for offer in result.offers if not offer.spot or skus[offer.instance_type.lower()].spot
        }
        points = tuple(point for point in result.points if point.offer_id in offers)
        priced = {point.offer_id for point in points}
        self._found[region] = now_s, _Region(tuple(offers[each] for each in sorted(priced)), points)
        return None
