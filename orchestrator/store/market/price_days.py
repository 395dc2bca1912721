"""Daily summaries: the lowest, time-weighted mean, highest and last price of each offer and UTC day.

Only past days whose prices are fully known are summarized. A price that is learned late deletes the summaries from its
day on (PriceRows.add_prices), so that they are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, case, func, select

from orchestrator.store.market.polls import ALL_REGIONS
from orchestrator.store.market.prices import DAY_MS, Interval, PriceRows
from orchestrator.store.rows import checked
from orchestrator.store.schema import offer, poll_state, price_day, price_now, price_point
from orchestrator.store.transaction import among

_OFFERS = 200  # per transaction


class PriceDay(NamedTuple):
    """An offer's prices on the UTC day that begins at `start_ms`, in nano-USD per hour."""

    offer_id: str
    start_ms: int
    lowest: int
    mean: int
    highest: int
    last: int
    changes: int


_POLLED_TO = (  # the start of the last successful poll
    select(func.max(poll_state.c.good_started_ms))
    .where(poll_state.c.source == offer.c.source)
    .where((poll_state.c.region == offer.c.region) | among(poll_state.c.region, ALL_REGIONS))
    .correlate(offer)
    .scalar_subquery()
)
_KNOWN_TO = case(  # imported and unlisted offers are known up to their last price
    (offer.c.listed, func.coalesce(_POLLED_TO, price_now.c.effective_at_ms)), else_=price_now.c.effective_at_ms
)
_LAST_DAY = select(func.max(price_day.c.day)).where(price_day.c.offer_key == offer.c.key).correlate(offer)
_FIRST_PRICE = select(func.min(price_point.c.effective_at_ms)).where(price_point.c.offer_key == offer.c.key)
_PENDING = (
    select(
        offer.c.key,
        offer.c.id,
        _KNOWN_TO.label("known_to_ms"),
        _LAST_DAY.scalar_subquery().label("last_day"),
        _FIRST_PRICE.correlate(offer).scalar_subquery().label("first_ms"),
    )
    .join(price_now, price_now.c.offer_key == offer.c.key)
    .order_by(offer.c.key)
)
_DAYS = (
    select(offer.c.id, price_day)
    .join(price_day, price_day.c.offer_key == offer.c.key)
    .where(offer.c.id == bindparam("name"), price_day.c.day.between(bindparam("first"), bindparam("last")))
    .order_by(price_day.c.day)
)


class PriceDayRows(PriceRows):
    """Writes and reads daily summaries."""

    def roll_up(self, until_ms: int, *, most: int = _OFFERS) -> int:
        """Summarizes the days up to `until_ms` that have no summary yet, for at most `most` offers; returns the number
        of offers.

        Repeat it, in a new transaction each time, until that is 0.
        """
        pending = []
        for row in self._connection.execute(_PENDING).all():
            first = row.first_ms // DAY_MS if row.last_day is None else row.last_day + 1
            end = min(until_ms, row.known_to_ms) // DAY_MS
            if first < end:
                pending.append((row.key, Interval(row.id, first * DAY_MS, end * DAY_MS)))
        chosen = pending[:most]
        rows = [
            {"offer_key": key, **day}
            for (key, interval), changes in zip(
                chosen, self.price_changes_of([each for _, each in chosen]), strict=True
            )
            for day in _days(changes, interval.start_ms, interval.end_ms)
        ]
        if rows:
            self._insert_many(price_day, rows)
        return len(chosen)

    def price_days(self, offer_id: str, start_ms: int, end_ms: int) -> list[PriceDay]:
        """The summaries of an offer for the days that begin in [`start_ms`, `end_ms`), in order."""
        asked = {"name": offer_id, "first": -(-start_ms // DAY_MS), "last": (end_ms - 1) // DAY_MS}
        return [
            PriceDay(
                offer_id,
                row.day * DAY_MS,
                row.min_nano_usd,
                row.mean_nano_usd,
                row.max_nano_usd,
                row.last_nano_usd,
                row.changes,
            )
            for row in checked("price_day", self._connection.execute(_DAYS, asked), (str, *[int] * 7))
        ]


def _days(changes: Sequence[tuple[int, int]], start_ms: int, end_ms: int) -> list[dict[str, int]]:
    """Rows of price_day from `start_ms` to `end_ms` (midnights); `changes` begin with the current price at the
    start."""
    rows = []
    in_force: int | None = None
    place = 0
    for midnight in range(start_ms, end_ms, DAY_MS):
        weighted = held = number = 0
        since = midnight
        seen = [] if in_force is None else [in_force]
        while place < len(changes) and changes[place][0] < midnight + DAY_MS:
            at_ms, price = changes[place]
            place += 1
            if at_ms <= midnight:
                in_force, seen = price, [price]
                number += at_ms == midnight
                continue
            if in_force is not None:
                weighted += in_force * (at_ms - since)
                held += at_ms - since
            in_force, since, number = price, at_ms, number + 1
            seen.append(price)
        if in_force is None:
            continue
        weighted += in_force * (midnight + DAY_MS - since)
        held += midnight + DAY_MS - since
        rows.append(
            {
                "day": midnight // DAY_MS,
                "min_nano_usd": min(seen),
                "mean_nano_usd": weighted // held,
                "max_nano_usd": max(seen),
                "last_nano_usd": in_force,
                "changes": number,
            }
        )
    return rows
