"""Record: a market of the past: its offers, and the price of each at any time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.market import Listing
from providers.money import cost_nano_usd
from providers.offer import Offer
from providers.price import PricePoint

Change = tuple[int, int]
"""(epoch ms of market time, nano-USD per hour from then on)."""


@dataclass(frozen=True, eq=False)
class Record:
    """`changes` are the prices by row of the listing, ascending; a price holds until the next one, and the last one
    forever. Jobs are started between `start_ms` and `end_ms`; earlier prices are used to learn the course of prices."""

    name: str
    listing: Listing
    changes: tuple[tuple[Change, ...], ...]
    start_ms: int
    end_ms: int

    @classmethod
    def of(cls, name: str, prices: Mapping[Offer, Iterable[Change]], start_ms: int, end_ms: int) -> Record:
        """The record of these offers, in any order. Repeated prices are left out."""
        by_id = {offer.id: _without_repeats(sorted(changes)) for offer, changes in prices.items()}
        listing = Listing.of(prices)
        return cls(name, listing, tuple(by_id[offer_id] for offer_id in listing.ids), start_ms, end_ms)

    @cached_property
    def points(self) -> tuple[PricePoint, ...]:
        """All prices in order of time."""
        found = [
            PricePoint(offer_id, price, at_ms, at_ms, self.name)
            for offer_id, changes in zip(self.listing.ids, self.changes, strict=True)
            for at_ms, price in changes
        ]
        return tuple(sorted(found, key=lambda point: (point.observed_at_ms, point.offer_id)))

    @cached_property
    def _times(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(at_ms for at_ms, _ in changes) for changes in self.changes)

    def price(self, row: int, at_ms: int) -> int | None:
        """nano-USD per hour of an offer at a time; None before its first price."""
        index = bisect_right(self._times[row], at_ms) - 1
        return self.changes[row][index][1] if index >= 0 else None

    def between(self, row: int, from_ms: int, to_ms: int) -> tuple[Change, ...]:
        """The price in force at `from_ms`, and its changes before `to_ms`."""
        times = self._times[row]
        return self.changes[row][max(bisect_right(times, from_ms) - 1, 0) : bisect_right(times, to_ms)]

    def cost(self, row: int, from_ms: int, to_ms: int) -> int:
        """nano-USD for a machine's time. Raises ValueError if it has no price at `from_ms`."""
        return cost_nano_usd(self.between(row, from_ms, to_ms), from_ms, to_ms)


def _without_repeats(changes: Sequence[Change]) -> tuple[Change, ...]:
    kept: list[Change] = []
    for at_ms, price in changes:
        if kept and kept[-1][0] == at_ms:
            kept.pop()
        if not kept or kept[-1][1] != price:
            kept.append((at_ms, price))
    return tuple(kept)
