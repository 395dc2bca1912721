"""Merge: of what several sources say of one offer, what counts.

Sources are merged offer by offer and capacity type, never region by region: a feed that names one machine says nothing
of the others in its region. The freshest counts, and says whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from providers.offer import CapacityType, Offer
from providers.price import PricePoint


class Kind(NamedTuple):
    """What two sources may both speak of: a machine in a region, bought one way. One source may know its zones where
    another knows the region alone."""

    provider: str
    region: str
    instance_type: str
    capacity_type: CapacityType

    @classmethod
    def of(cls, offer: Offer) -> Kind:
        return cls(offer.provider, offer.region, offer.instance_type, offer.capacity_type)


LIST_FRESH_S = 86_400.0
"""A list is of a day."""


@dataclass(frozen=True, slots=True)
class ReportedPrice:
    """An offer and its price as one source tells them. `known_ms` is up to when the price is known to be in force,
    `source` whose it is, for people; it counts as it is for `fresh_s` seconds from there."""

    offer: Offer
    price: PricePoint
    known_ms: int
    source: str
    fresh_s: float = LIST_FRESH_S

    @property
    def dated_price(self) -> PricePoint:
        """The price, learned when it was last known to be in force: its age is counted from there."""
        return replace(self.price, observed_at_ms=max(self.known_ms, self.price.observed_at_ms))


def merged(
    collected: Iterable[ReportedPrice], listed: Iterable[ReportedPrice], gone: Mapping[Kind, int]
) -> tuple[ReportedPrice, ...]:
    """What was `collected`, and what lists say of everything else.

    Of a kind that both tell, the one known to be in force for longer counts. `gone` are kinds that a source no longer
    names, and when it was asked: an older list does not bring them back.
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
