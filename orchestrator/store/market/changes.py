"""What changed of the market since it was last read, so that a decision reads that and not a hundred thousand offers.

Each part has a number that grows with every change, in the transaction that makes it. Beside the newest price of an
offer stands the number of the last change that brought a price of it.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import bindparam, select, text

from orchestrator.store.rows import checked
from orchestrator.store.schema import market_change, offer, price_now
from orchestrator.store.transaction import Transaction

OFFERS, PRICES = "offers", "prices"

_NUMBERS = select(market_change.c.part, market_change.c.number)
_ONE_MORE = text(
    "INSERT INTO market_change (part, number) VALUES (:part, 1) "
    "ON CONFLICT (part) DO UPDATE SET number = market_change.number + 1"
)
_NUMBER = select(market_change.c.number).where(market_change.c.part == bindparam("part"))
_SINCE = (
    select(offer.c.id)
    .join(price_now, price_now.c.offer_key == offer.c.key)
    .where(price_now.c.changed > bindparam("number"))
)


class MarketChanges(NamedTuple):
    """How often each part was written: what is listed, and prices."""

    offers: int
    prices: int


class ChangeRows(Transaction):
    """What changed in the market since it was last read."""

    def market_changes(self) -> MarketChanges:
        """As of this transaction."""
        numbers = dict(checked("market_change", self._connection.execute(_NUMBERS), (str, int)))
        return MarketChanges(*(numbers.get(part, 0) for part in (OFFERS, PRICES)))

    def prices_changed_since(self, number: int) -> list[str]:
        """Ids of the offers of which a price, the newest or an older one, came with a later change than this one."""
        return list(self._connection.execute(_SINCE, {"number": number}).scalars())

    def _changed(self, part: str) -> int:
        """Count one more change; returns its number."""
        self._connection.execute(_ONE_MORE, {"part": part})
        return int(self._connection.execute(_NUMBER, {"part": part}).scalar_one())
