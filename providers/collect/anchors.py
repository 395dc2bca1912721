"""Checks the first price of an offer against its list price and against the price of its GPU elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from providers.money import format_usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SAME = {CapacityType.ON_DEMAND: 4, CapacityType.SPOT: 10}
"""A price is implausible if it differs by more than this factor from the list price of the same machine and region.
List prices of GPU machines have halved within two years (AWS p5, 98.32 to 55.04); spot costs between a tenth and all of
on-demand.
"""
BELOW, ABOVE = 3, 4
"""A GPU is implausible below a third of the lowest list price anywhere and above four times the highest. List prices
themselves vary by a factor of ten between clouds.
"""

Range = tuple[int, int]
Listed = Callable[[], Iterable[tuple[Offer, PricePoint]]]


def catalogue() -> Iterable[tuple[Offer, PricePoint]]:
    """The catalogue's offers and prices. Raises CatalogError."""
    from providers.catalog import load

    listed = load()
    return zip(listed.offers(), listed.prices(), strict=True)


@dataclass(frozen=True)
class Anchors:
    """Reference prices. `listed` is called once, when the first price is checked."""

    listed: Listed = catalogue

    def objection(self, offer: Offer, nano_usd_per_hour: int) -> str:
        """Why this price is implausible; empty if it is plausible or there is nothing to compare it with."""
        if offer.simulated:
            return ""
        same, of_gpu = self._ranges
        if (found := same.get(_same(offer))) is not None:
            factor = SAME[offer.capacity_type]
            if not found[0] / factor <= nano_usd_per_hour <= found[1] * factor:
                return f"{format_usd(nano_usd_per_hour)}/h, but list prices are {_span(found)}"
        if offer.gpu is not None and (found := of_gpu.get((offer.gpu, offer.capacity_type))) is not None:
            each = nano_usd_per_hour // max(offer.gpu_count, 1)
            if not found[0] / BELOW <= each <= found[1] * ABOVE:
                kind = "spot" if offer.spot else "on demand"
                return f"{format_usd(each)}/h for one {offer.gpu} {kind}, but elsewhere it costs {_span(found)}"
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
