"""Retention: deletes prices and polls before a given time, once they are archived.

Everything that a query at or after that time may need is kept: each offer's price then known, and all newer ones.
Prices of offers that runs used or that jobs are compared with are always kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import bindparam, delete, func, insert, select

from orchestrator.errors import UnreadableRowError
from orchestrator.store.backends.types import Number
from orchestrator.store.market.offers import offer_of
from orchestrator.store.market.prices import PriceRows, newest_known
from orchestrator.store.schema import job, meta, offer, poll, price_point, price_source, run
from providers.offer import Offer
from providers.price import PricePoint

KEPT_FROM = "history_kept_from_ms"
_AT = bindparam("at_ms", type_=Number)
_USED = select(run.c.offer_id).union(select(job.c.baseline_offer_id).where(job.c.baseline_offer_id.is_not(None)))
_KNOWN_THEN = (
    select(offer.c.key, newest_known(_AT).label("instant")).where(offer.c.id.not_in(_USED)).order_by(offer.c.key)
)
_LET_GO = delete(price_point).where(
    price_point.c.offer_key == bindparam("number"), price_point.c.effective_at_ms < bindparam("instant")
)
_LET_POLLS_GO = delete(poll).where(poll.c.started_ms < _AT)
_BETWEEN = (
    select(
        offer,
        price_point.c.nano_usd_per_hour,
        price_point.c.effective_at_ms,
        price_point.c.observed_at_ms,
        price_source.c.name.label("price_source"),
    )
    .join(price_point, price_point.c.offer_key == offer.c.key)
    .join(price_source, price_source.c.key == price_point.c.source_key)
    .where(price_point.c.effective_at_ms >= bindparam("start_ms"), price_point.c.effective_at_ms < bindparam("end_ms"))
    .order_by(offer.c.id, price_point.c.effective_at_ms)
)


class RetentionRows(PriceRows):
    """Deletes old history."""

    def kept_from_ms(self) -> int:
        """The time in ms from which history is complete; 0 if nothing was deleted."""
        found = self._connection.execute(select(meta.c.value).where(meta.c.key == KEPT_FROM)).scalar_one_or_none()
        if found is not None and not str(found).isdecimal():
            raise UnreadableRowError("meta", KEPT_FROM, f"{found!r} is not a time")
        return 0 if found is None else int(found)

    def first_price_ms(self) -> int | None:
        """The time in ms of the oldest stored price change; None without any."""
        first = (
            select(func.min(price_point.c.effective_at_ms))
            .where(price_point.c.offer_key == offer.c.key)
            .correlate(offer)
            .scalar_subquery()
        )
        found: int | None = self._connection.execute(select(func.min(first)).select_from(offer)).scalar_one()
        return found

    def points_between(self, start_ms: int, end_ms: int) -> Iterator[tuple[Offer, PricePoint]]:
        """A stream of the price changes in the period, by offer and time."""
        rows = self._connection.execute(
            _BETWEEN, {"start_ms": start_ms, "end_ms": end_ms}, execution_options={"yield_per": 5000}
        )
        for row in rows:
            yield (
                offer_of(row._mapping),
                PricePoint(row.id, row.nano_usd_per_hour, row.effective_at_ms, row.observed_at_ms, row.price_source),
            )

    def let_go(self, before_ms: int, *, most: int = 20_000) -> tuple[int, int]:
        """Deletes unneeded prices and polls before `before_ms`; returns the number of each.

        It deletes about `most` prices, so other writers do not wait long: repeat it, in a new transaction each time,
        until both are 0.
        """
        kept_from = max(before_ms, self.kept_from_ms())
        self._connection.execute(delete(meta).where(meta.c.key == KEPT_FROM))
        self._connection.execute(insert(meta).values(key=KEPT_FROM, value=str(kept_from)))
        known = self._connection.execute(_KNOWN_THEN, {"at_ms": kept_from}).all()
        prices = 0
        for key, instant in known:
            if instant is not None:
                prices += self._connection.execute(_LET_GO, {"number": key, "instant": instant}).rowcount
            if prices >= most:
                break
        polls = self._connection.execute(_LET_POLLS_GO, {"at_ms": kept_from}).rowcount
        return prices, polls
