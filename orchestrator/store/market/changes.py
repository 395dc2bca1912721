"""Change counters of the market, so a decision reads only changes and not a hundred thousand offers.

Each part has a number that every change increments in its transaction. The newest price of an offer is stored with the
number of the last change of its price.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import bindparam, select, text

from orchestrator.store.rows import checked, values_of
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
    """The change counters of the listed offers and of prices."""

    offers: int
    prices: int


class ChangeRows(Transaction):
    """Reads and increments the change counters."""

    def market_changes(self) -> MarketChanges:
        """The counters in this transaction."""
        numbers = dict(checked("market_change", self._connection.execute(_NUMBERS), (str, int)))
        return MarketChanges(*(numbers.get(part, 0) for part in (OFFERS, PRICES)))

    def prices_changed_since(self, number: int) -> list[str]:
        """Ids of the offers for which a price, current or past, was stored after change `number`."""
        return values_of(offer.c.id, self._connection.execute(_SINCE, {"number": number}).scalars(), str)

    def _changed(self, part: str) -> int:
        """Increments a counter and returns it."""
        self._connection.execute(_ONE_MORE, {"part": part})
        return int(self._connection.execute(_NUMBER, {"part": part}).scalar_one())
