"""Prices collected of clouds that are not enabled: newer than the catalogue's, so they stand in its place where there
are any. Nothing can be rented there. Must not know: the catalogue, filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.services.offer_views import OfferRow

if TYPE_CHECKING:  # a command that asks the catalogue alone loads no database
    from orchestrator.config import Config
    from orchestrator.engine.world import World
    from orchestrator.store import Polled
    from providers.collect.facts import Signal
    from providers.offer import Offer
    from providers.price import PricePoint


@dataclass(frozen=True, slots=True)
class Collected:
    """Offers that are listed and priced, up to when each region was heard, and what was heard of its risks. `at_ms` is
    real time."""

    at_ms: int = 0
    offers: tuple[tuple[Offer, PricePoint], ...] = ()
    polled: tuple[Polled, ...] = ()
    risks: tuple[Signal, ...] = ()

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """(provider, region) of which prices were collected."""
        return frozenset((offer.provider, offer.region) for offer, _ in self.offers)

    def rows(self) -> Iterator[OfferRow]:
        heard = {(each.provider, each.region, each.spot): each.until_ms for each in self.polled}
        for offer, price in self.offers:
            known_ms = max(heard.get((offer.provider, offer.region, offer.spot), 0), price.observed_at_ms)
            age_s = max(self.at_ms - known_ms, 0) / 1000
            yield OfferRow.of(offer, price, age_s=age_s, source=price.source, simulated=offer.simulated, enabled=False)


NOTHING = Collected()


def collected(world: World) -> Collected:
    """What the store knows now of clouds that are not enabled; flagged rows are left out."""
    now = world.outside_clock.now_ms()
    with world.store.read() as tx:
        offers = {offer.id: offer for offer in tx.offers() if offer.provider not in world.providers}
        if not offers:
            return NOTHING
        priced = tuple((offers[point.offer_id], point) for point in tx.prices_as_of(now) if point.offer_id in offers)
        return Collected(now, priced, tuple(tx.polled()), tuple(tx.risks_as_of(now)))


def may_have_collected(config: Config) -> bool:
    """Whether there is a store that may hold anything; looks without opening or making one."""
    kind, _, path = config.store_url.partition(":///")
    return not kind.startswith("sqlite") or Path(path).exists()
