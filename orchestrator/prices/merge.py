"""Merge: decides which source counts where several report a price of one offer.

Sources are merged by offer and capacity type, never by region: a feed that lists one machine says nothing about the
others in its region. The most recent report counts and keeps its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from providers.offer import CapacityType, Offer
from providers.price import PricePoint


class Kind(NamedTuple):
    """A machine in a region, bought one way: what two sources may both report. One source may know zones where another
    only knows the region."""

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
    """An offer and its price as one source reports them. `known_ms` is when the price was last confirmed, `source` is
    for display; the price counts as fresh for `fresh_s` seconds from then."""

    offer: Offer
    price: PricePoint
    known_ms: int
    source: str
    fresh_s: float = LIST_FRESH_S

    @property
    def dated_price(self) -> PricePoint:
        """The price with its last confirmation as its observation time, from which its age counts."""
        return replace(self.price, observed_at_ms=max(self.known_ms, self.price.observed_at_ms))


def merged(
    collected: Iterable[ReportedPrice], listed: Iterable[ReportedPrice], gone: Mapping[Kind, int]
) -> tuple[ReportedPrice, ...]:
    """What was `collected`, plus what lists have for everything else.

    For a kind in both, the report confirmed more recently counts. `gone` has kinds that a source no longer lists and
    when (ms) it was asked: an older list does not bring them back.
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
