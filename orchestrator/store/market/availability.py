"""Results of launches, and the base class of all market tables."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import bindparam, func, select

from orchestrator.store.market.flags import FlagRows
from orchestrator.store.market.polls import PollRows
from orchestrator.store.market.price_series import PriceSeriesRows
from orchestrator.store.market.retention import RetentionRows
from orchestrator.store.rows import checked
from orchestrator.store.schema import availability_point, offer


class AvailabilityPoint(NamedTuple):
    """An observation of an offer's capacity (`kind`: launched, refused, preempted, ...)."""

    offer_id: str
    at_ms: int
    kind: str


_AVAILABILITY = (
    select(offer.c.id, availability_point.c.at_ms, availability_point.c.kind)
    .join(offer, offer.c.key == availability_point.c.offer_key)
    .where(availability_point.c.at_ms.between(bindparam("since_ms"), bindparam("until_ms")))
    .order_by(availability_point.c.at_ms, availability_point.c.seq)
)
_AVAILABILITY_SINCE = (
    select(offer.c.id, availability_point.c.at_ms, availability_point.c.kind, availability_point.c.seq)
    .join(offer, offer.c.key == availability_point.c.offer_key)
    .where(availability_point.c.seq > bindparam("after"), availability_point.c.at_ms >= bindparam("since_ms"))
    .order_by(availability_point.c.seq)
)
_NEWEST = select(func.max(availability_point.c.seq))


class MarketRows(PriceSeriesRows, RetentionRows, FlagRows, PollRows):
    """Reads and writes all market tables."""

    def add_availability(
        self, offer_id: str, at_ms: int, kind: str, run_id: str | None = None, detail: str = ""
    ) -> None:
        """Stores an observation. Raises NotFoundError for an unknown offer."""
        key = self._offer_keys({offer_id})[offer_id]
        self._insert(availability_point, offer_key=key, at_ms=at_ms, kind=kind, run_id=run_id, detail=detail)

    def availability_after(self, number: int, since_ms: int) -> tuple[int, list[AvailabilityPoint]]:
        """The observations stored after the one with this number, if they are of `since_ms` or later, in the order of
        writing; and the number of the newest. The first number is 0."""
        newest = self._connection.execute(_NEWEST).scalar_one() or 0
        if newest <= number:
            return number, []
        rows = self._connection.execute(_AVAILABILITY_SINCE, {"after": number, "since_ms": since_ms})
        found = checked("availability_point", rows, (str, int, str, int))
        return newest, [AvailabilityPoint(*row[:3]) for row in found]

    def availability(self, since_ms: int, until_ms: int) -> list[AvailabilityPoint]:
        """The observations from `since_ms` to `until_ms`, both inclusive, by time."""
        rows = self._connection.execute(_AVAILABILITY, {"since_ms": since_ms, "until_ms": until_ms})
        return [AvailabilityPoint(*row) for row in checked("availability_point", rows, (str, int, str))]
