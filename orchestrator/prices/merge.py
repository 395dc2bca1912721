"""Merges price sources: decides which one is used if several report a price for one offer.

Sources are merged by offer and capacity type, never by region: a feed that lists one machine says nothing about the
others in its region. The most recent report is used and keeps its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from providers.offer import CapacityType, Offer
from providers.price import PricePoint


class Kind(NamedTuple):
    """A machine type in a region with one capacity type, which two sources may both report. One source may report zones
    and another only the region."""

    provider: str
    region: str
    instance_type: str
    capacity_type: CapacityType

    @classmethod
    def of(cls, offer: Offer) -> Kind:
        """The kind of an offer."""
        return cls(offer.provider, offer.region, offer.instance_type, offer.capacity_type)


LIST_FRESH_S = 86_400.0
"""A price list is valid for a day."""


@dataclass(frozen=True, slots=True)
class ReportedPrice:
    """An offer and its price as reported by one source. `known_ms` is when the price was last confirmed; it counts as
    fresh for `fresh_s` seconds after that. `source` is for display."""

    offer: Offer
    price: PricePoint
    known_ms: int
    source: str
    fresh_s: float = LIST_FRESH_S

    @property
    def dated_price(self) -> PricePoint:
        """The price with its last confirmation as observation time, from which its age is measured."""
        return replace(self.price, observed_at_ms=max(self.known_ms, self.price.observed_at_ms))


def merged(
    collected: Iterable[ReportedPrice], listed: Iterable[ReportedPrice], gone: Mapping[Kind, int]
) -> tuple[ReportedPrice, ...]:
    """The `collected` prices, plus list prices for everything else.

    For a kind in both, the more recently confirmed report is used. `gone` has the kinds that a source no longer lists,
    and when (ms) it was polled: an older list does not restore them.
    """
    fresh, old = list(collected), list(listed)
    collected_ms, listed_ms = _newest(fresh), _newest(old)
    kept = [each for each in fresh if each.known_ms >= listed_ms.get(Kind.of(each.offer), -1)]
    for each in old:
        kind = Kind.of(each.offer)
        if each.known_ms > max(collected_ms.get(kind, -1), gone.get(kind, -1)):
            kept.append(each)
    return tuple(kept)


def _newest(reported: Iterable[ReportedPrice]) -> dict[Kind, int]:
    newest: dict[Kind, int] = {}
    for each in reported:
        kind = Kind.of(each.offer)
        newest[kind] = max(each.known_ms, newest.get(kind, -1))
    return newest
