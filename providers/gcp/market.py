"""What can be rented on GCP now, and at what price: the configured types in the configured regions.

GCP changes its spot prices at most once a day, so its list of prices is read once an hour. A region that does not
answer keeps its last offers and prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from providers.clock import Clock
from providers.closed import Closed, refused, without_offers
from providers.collect.facts import PollResult
from providers.errors import ProviderError
from providers.gcp.names import PROVIDER
from providers.gcp.prices.billing import BILLING
from providers.gcp.prices.list_prices import ListPrices
from providers.gcp.session import Connections
from providers.gcp.settings import Settings
from providers.offer import Offer
from providers.price import PricePoint

LISTED_S = 3600.0
AGAIN_S = 60.0
"""After a failure."""
MOST_AT_ONCE = 4


class Market:
    """The offers and prices of a project."""

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self._settings, self._connections, self._clock = settings, connections, clock
        self._last: dict[str, PollResult] = {}
        self._asked_s = -LISTED_S
        self._failed: ProviderError | None = None
        self._refused: dict[str, ProviderError] = {}

    def offers(self) -> Sequence[Offer]:
        """All offers. Raises ProviderError if no region has answered yet."""
        self._refresh()
        found = {offer.id: offer for result in self._last.values() for offer in result.offers}
        return [found[each] for each in sorted(found)]

    def prices(self) -> Sequence[PricePoint]:
        """The prices as of the last request. Raises ProviderError if no region has answered yet."""
        self._refresh()
        return [point for result in self._last.values() for point in result.points]

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        answered = [region for region in self._settings.regions if region in self._last and region not in self._refused]
        offers = [offer for region in answered for offer in self._last[region].offers]
        found = [refused(region, error) for region, error in sorted(self._refused.items())]
        return found + list(without_offers(PROVIDER, answered, self._settings.machine_types, offers, {}))

    def _refresh(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_s >= (LISTED_S if self._failed is None else AGAIN_S):
            self._asked_s, self._failed, self._refused = now_s, None, {}
            source = ListPrices(
                machine_types=self._settings.machine_types,
                billing=self._settings.catalog or BILLING,
                connections=self._connections,
            )
            now_ms, regions = self._clock.now_ms(), self._settings.regions
            with ThreadPoolExecutor(min(len(regions), MOST_AT_ONCE)) as pool:
                for result in pool.map(lambda region: source.poll(region, now_ms, None), regions):
                    if result.error is None:
                        self._last[result.region] = result
                    else:
                        self._failed = result.error
                        if not result.error.retryable:
                            self._refused[result.region] = result.error
        if self._failed is not None and not self._last:
            raise self._failed
