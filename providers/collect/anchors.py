"""Anchors: what a price is held against of whose offer nothing is known yet: the catalogue's price of it, and what its
GPU costs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from providers.money import format_usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SAME = {CapacityType.ON_DEMAND: 4, CapacityType.SPOT: 10}
"""So many times off the listed price of the same machine and region is implausible. List prices of GPU machines halved
within two years (AWS p5, 98.32 to 55.04); spot lies between a tenth and all of on-demand."""
BELOW, ABOVE = 3, 4
"""A GPU for less than a third of the cheapest one that any list names, or for more than four times the dearest, is
implausible. The lists themselves span a factor of ten between the cheapest cloud and the dearest."""

Range = tuple[int, int]
Listed = Callable[[], Iterable[tuple[Offer, PricePoint]]]


def catalogue() -> Iterable[tuple[Offer, PricePoint]]:
    """The listed offers and prices. Raises CatalogError."""
    from providers.catalog import load

    listed = load()
    return zip(listed.offers(), listed.prices(), strict=True)


@dataclass(frozen=True)
class Anchors:
    """`listed` is asked once, when a price has to be held against something for the first time."""

    listed: Listed = catalogue

    def objection(self, offer: Offer, nano_usd_per_hour: int) -> str:
        """What is implausible about this price; empty if nothing is, or nothing is known to hold it against."""
        if offer.simulated:
            return ""
        same, of_gpu = self._ranges
        if (found := same.get(_same(offer))) is not None:
            factor = SAME[offer.capacity_type]
            if not found[0] / factor <= nano_usd_per_hour <= found[1] * factor:
                return f"{format_usd(nano_usd_per_hour)}/h, and lists say {_span(found)}"
        if offer.gpu is not None and (found := of_gpu.get((offer.gpu, offer.capacity_type))) is not None:
            each = nano_usd_per_hour // max(offer.gpu_count, 1)
            if not found[0] / BELOW <= each <= found[1] * ABOVE:
                kind = "spot" if offer.spot else "on demand"
                return f"{format_usd(each)}/h for one {offer.gpu} {kind}, and elsewhere it costs {_span(found)}"
        return ""

    @cached_property
    def _ranges(self) -> tuple[Mapping[object, Range], Mapping[object, Range]]:
        same: dict[object, Range] = {}
        of_gpu: dict[object, Range] = {}
        for offer, point in self.listed():
            _widen(same, _same(offer), point.nano_usd_per_hour)
            if offer.gpu is not None and offer.gpu_count > 0:
                _widen(of_gpu, (offer.gpu, offer.capacity_type), point.nano_usd_per_hour // offer.gpu_count)
        return same, of_gpu


def _same(offer: Offer) -> object:
    return offer.provider, offer.region, offer.instance_type, offer.capacity_type


def _widen(ranges: dict[object, Range], key: object, value: int) -> None:
    low, high = ranges.get(key, (value, value))
    ranges[key] = (min(low, value), max(high, value))


def _span(found: Range) -> str:
    low, high = (f"{format_usd(each)}/h" for each in found)
    return low if low == high else f"{low} to {high}"
