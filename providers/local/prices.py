"""The prices that `local` shows and bills: the market's, with manual overrides.

Current prices, price history and bills all use this module, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from providers.local.market import OPENED_MS, LocalMarket


@dataclass(frozen=True, slots=True)
class PriceOverride:
    """A price set manually for [from_ms, to_ms), in whole market seconds."""

    offer_id: str
    nano_usd_per_hour: int
    from_ms: int
    to_ms: int


class PricePath:
    """The price of every offer at any time. If `overrides` overlap, the one set last applies."""

    def __init__(self, market: LocalMarket, overrides: Sequence[PriceOverride]) -> None:
        self._market = market
        self._overrides: dict[str, list[PriceOverride]] = {}
        for override in overrides:
            self._overrides.setdefault(override.offer_id, []).append(override)

    def price(self, offer_id: str, at_ms: int) -> int:
        """The price in force at a time, in nano-USD per hour."""
        for override in reversed(self._overrides.get(offer_id, ())):
            if override.from_ms <= at_ms < override.to_ms:
                return override.nano_usd_per_hour
        return self._market.price(offer_id, at_ms)

    def in_force(self, offer_id: str, at_ms: int) -> tuple[int, int]:
        """(since when, nano-USD per hour) of the price in force at a time."""
        price = self.price(offer_id, at_ms)
        since = at_ms
        while True:
            since = max(OPENED_MS, self._last_breakpoint(offer_id, since))
            if since == OPENED_MS or self.price(offer_id, since - 1) != price:
                return since, price
            since -= 1

    def changes(self, offer_id: str, from_ms: int, until_ms: int) -> list[tuple[int, int]]:
        """The price in force at `from_ms` and every change up to and including `until_ms`, ascending."""
        found = [self.in_force(offer_id, from_ms)]
        instants = set(self._market.changes_between(offer_id, from_ms, until_ms))
        for override in self._overrides.get(offer_id, ()):
            instants |= {at for at in (override.from_ms, override.to_ms) if from_ms < at <= until_ms}
        for at_ms in sorted(instants):
            price = self.price(offer_id, at_ms)
            if price != found[-1][1]:
                found.append((at_ms, price))
        return found

    def _last_breakpoint(self, offer_id: str, at_ms: int) -> int:
        last = self._market.last_change(offer_id, at_ms)
        for override in self._overrides.get(offer_id, ()):
            last = max(last, *(at for at in (override.from_ms, override.to_ms, last) if at <= at_ms))
        return last
