"""Price changes: append-only, each with the time when it took effect and the time when it was observed.

Queries for many offers or runs are one statement each, answered from the key (offer, time): the price in force is the
latest row at or before the given time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from types import NoneType
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Row, Select, Table, bindparam, delete, func, or_, select

from orchestrator.errors import UnreadableRowError
from orchestrator.store.backends.types import Number
from orchestrator.store.market.changes import PRICES
from orchestrator.store.market.offers import OfferRows, batches
from orchestrator.store.rows import EARLIEST_MS, LATEST_MS, checked, quickly, record, values_of, whole_numbers
from orchestrator.store.schema import offer, price_day, price_flag, price_now, price_point, price_source
from providers.price import PricePoint

DAY_MS = 86_400_000
_SHAPES = frozenset({(str, int, int, int, str)})  # value types of a row of _points_of
_ASKED = 2000  # intervals per statement


class Interval(NamedTuple):
    """A half-open period of an offer: [`start_ms`, `end_ms`)."""

    offer_id: str
    start_ms: int
    end_ms: int


class _Known(NamedTuple):
    effective_at_ms: int
    observed_at_ms: int
    nano_usd_per_hour: int


class PriceRows(OfferRows):
    """Writes and reads price changes."""

    def add_prices(self, points: Iterable[PricePoint]) -> int:
        """Stores price changes; returns the number of new points.

        A point is skipped if its offer already has one with the same `effective_at_ms`, or if the one before it has the
        same price and was observed no later. So history that is learned late must include every change up to the
        present, as ProvidesPriceHistory does. If a clock was ahead when an offer's present price was observed, the same
        point observed now is stored as a change from now on. Raises NotFoundError for an unknown offer.
        """
        now_ms = self._clock.now_ms()
        ordered = sorted(points, key=lambda point: (point.effective_at_ms, point.observed_at_ms))
        present = {point.offer_id: point for point in ordered if point.effective_at_ms <= now_ms}
        keys, newest = self._keys_and_newest({point.offer_id for point in ordered})
        sources = self._source_keys({point.source for point in ordered})
        known = self._known_around(ordered, keys, newest)
        fresh = []
        first_day: dict[int, int] = {}
        for point in ordered:
            key = keys[point.offer_id]
            series = known[key]
            since_ms = point.effective_at_ms
            place = bisect_left(series, (since_ms,))
            if (
                point is present.get(point.offer_id)
                and _is_at(series, place, since_ms)
                and point.observed_at_ms <= now_ms < series[place].observed_at_ms
            ):
                since_ms = point.observed_at_ms
                place = bisect_left(series, (since_ms,))
            if _is_at(series, place, since_ms):
                continue
            entry = _Known(since_ms, point.observed_at_ms, point.nano_usd_per_hour)
            if place and _adds_nothing(series[place - 1], entry):
                continue
            row = {
                "offer_key": key,
                "effective_at_ms": since_ms,
                "observed_at_ms": point.observed_at_ms,
                "nano_usd_per_hour": point.nano_usd_per_hour,
                "source_key": sources[point.source],
            }
            if place == len(series):
                newest[key] = row
            series.insert(place, entry)
            first_day.setdefault(key, since_ms // DAY_MS)
            fresh.append(row)
        if fresh:
            self._insert_many(price_point, fresh)
            self._renew([row for row in map(newest.get, first_day) if row is not None])
            self._forget_days(first_day)
        return len(fresh)

    def payable_as_of(self, at_ms: int, offer_ids: Collection[str] | None = None) -> list[PricePoint]:
        """The price of each offer (of these) that was in force and known at `at_ms`, by offer id. This is the cost of a
        machine, whether or not the offer was flagged."""
        if offer_ids is None:
            return self._as_of(_PAYABLE, at_ms)
        found: list[PricePoint] = []
        for batch in batches(offer_ids):
            found += self._as_of(_PAYABLE_OF, at_ms, ids=batch)
        return found

    def eligible_as_of(self, at_ms: int) -> list[PricePoint]:
        """Like `payable_as_of`, without offers that were flagged then (FlagRows)."""
        return self._as_of(_ELIGIBLE, at_ms)

    def _as_of(self, statements: tuple[Select[Any], Select[Any]], at_ms: int, **asked: Any) -> list[PricePoint]:
        newest, older = (self._connection.execute(each, {"at_ms": at_ms, **asked}).all() for each in statements)
        return sorted(_points("price_point", (*newest, *older)), key=lambda point: point.offer_id)

    def not_in_force(self, at_ms: int, offer_ids: Collection[str] | None = None) -> list[str]:
        """Ids of the offers (of these) whose newest price was not in force or not known at `at_ms`."""
        if offer_ids is None:
            return values_of(offer.c.id, self._connection.execute(_NOT_IN_FORCE, {"at_ms": at_ms}).scalars(), str)
        asked = ({"at_ms": at_ms, "ids": batch} for batch in batches(offer_ids))
        names = (name for each in asked for name in self._connection.execute(_NOT_IN_FORCE_OF, each).scalars())
        return values_of(offer.c.id, names, str)

    def newest_prices(self, providers: Collection[str] | None = None) -> list[PricePoint]:
        """The latest price change of each listed offer (of these providers), by offer id; flagged and announced ones
        included."""
        query, asked = (_NEWEST_LISTED, {}) if providers is None else (_NEWEST_OF, {"names": sorted(providers)})
        return _points("price_now", self._connection.execute(query, asked).all())

    def first_prices_ms(self, offer_ids: Collection[str]) -> dict[str, int]:
        """The time of the oldest price of each offer in ms; offers without a price are missing."""
        found: dict[str, int] = {}
        for batch in batches(offer_ids):
            rows = self._connection.execute(_FIRST, {"ids": batch})
            found.update(checked("price_point", rows, (str, int)))
        return found

    def price_points(self, offer_id: str, start_ms: int, end_ms: int) -> list[PricePoint]:
        """An offer's price points from the one in force at `start_ms` to the last before `end_ms`, by time."""
        return self.price_points_of([Interval(offer_id, start_ms, end_ms)])[0]

    def price_points_of(self, intervals: Sequence[Interval]) -> list[list[PricePoint]]:
        """Like `price_points`, for many intervals."""
        sources = dict(checked("price_source", self._connection.execute(_SOURCE_NAMES), (int, str)))
        found: list[list[PricePoint]] = [[] for _ in intervals]
        for number, effective_at_ms, observed_at_ms, price, source in self._asked(intervals):
            name = intervals[number].offer_id
            if source not in sources:
                raise UnreadableRowError("price_source", source, "the row is missing")
            found[number].append(PricePoint(name, price, effective_at_ms, observed_at_ms, sources[source]))
        return found

    def price_changes(self, offer_id: str, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
        """(effective_at_ms, nano_usd_per_hour) from the price in force at `start_ms`, if known, to the last before
        `end_ms`, by time; the argument of providers.money.cost_nano_usd."""
        return self.price_changes_of([Interval(offer_id, start_ms, end_ms)])[0]

    def price_changes_of(self, intervals: Sequence[Interval]) -> list[list[tuple[int, int]]]:
        """Like `price_changes`, for many intervals, in their order."""
        found: list[list[tuple[int, int]]] = [[] for _ in intervals]
        for number, effective_at_ms, _, price, _ in self._asked(intervals):
            found[number].append((effective_at_ms, price))
        return found

    def mean_prices(self, intervals: Sequence[Interval]) -> list[int | None]:
        """The time-weighted mean price of each interval in nano-USD per hour, from the first known price on; None
        without a price."""
        found: list[int | None] = [None] * len(intervals)
        for statement in self._about(intervals, _mean_within):
            for number, mean in whole_numbers("price_point", self._connection.exec_driver_sql(statement).all()):
                found[number] = mean
        return found

    def prices_at(self, instants: Sequence[tuple[str, int]]) -> list[int | None]:
        """The price of each (offer id, time in ms) in nano-USD per hour, as known now; None if there was none."""
        found: list[int | None] = [None] * len(instants)
        keys = self._offer_keys({offer_id for offer_id, _ in instants}, strict=False)
        rows = [(number, keys[name], at_ms) for number, (name, at_ms) in enumerate(instants) if name in keys]
        rows.sort(key=lambda row: row[1:])  # in key order: a quarter faster
        for start in range(0, len(rows), _ASKED):
            statement = _in_force(self._listed(rows[start : start + _ASKED]))
            answers = self._connection.exec_driver_sql(statement).all()
            for number, price in whole_numbers("price_point", answers, but=(NoneType,)):
                found[number] = price
        return found

    def _listed(self, rows: Sequence[tuple[int, ...]]) -> str:
        """A query that returns these rows of integers. Postgres reads arrays in half the time of VALUES."""
        if self._connection.dialect.name != "postgresql":
            return f"VALUES {', '.join(map(str, rows))}"
        arrays = ", ".join(f"'{{{','.join(map(str, column))}}}'::bigint[]" for column in zip(*rows, strict=True))
        return f"SELECT * FROM unnest({arrays})"

    def _asked(self, intervals: Sequence[Interval]) -> Iterable[Any]:
        """(index of the interval, effective, observed, price, source key), ascending in the first two."""
        for statement in self._about(intervals, _within):
            yield from whole_numbers("price_point", self._connection.exec_driver_sql(statement).all())

    def _about(self, intervals: Sequence[Interval], question: Callable[[str], str]) -> Iterable[str]:
        """The statements of a query about (index of the interval, offer key, start, end)."""
        keys = self._offer_keys({each.offer_id for each in intervals}, strict=False)
        rows = [
            (number, keys[each.offer_id], each.start_ms, max(each.end_ms, each.start_ms + 1))
            for number, each in enumerate(intervals)
            if each.offer_id in keys
        ]
        for start in range(0, len(rows), _ASKED):
            yield question(self._listed(rows[start : start + _ASKED]))

    def _keys_and_newest(self, ids: set[str]) -> tuple[dict[str, int], dict[int, dict[str, int] | None]]:
        """Offer keys by id, and rows of price_now by key. Raises NotFoundError for an unknown offer."""
        keys = self._offer_keys(ids)
        newest: dict[int, dict[str, int] | None] = dict.fromkeys(keys.values())
        wanted = list(newest)
        for start in range(0, len(wanted), _ASKED):
            rows = self._connection.exec_driver_sql(_of_keys(wanted[start : start + _ASKED])).all()
            newest.update((row.offer_key, dict(row._mapping)) for row in whole_numbers("price_now", rows))
        return keys, newest

    def _known_around(
        self, points: Sequence[PricePoint], keys: dict[str, int], newest: dict[int, dict[str, int] | None]
    ) -> dict[int, list[_Known]]:
        """By offer key, the stored prices from the one in force at the first point on; usually only the newest."""
        known: dict[int, list[_Known]] = {}
        late = []
        for point in points:
            key = keys[point.offer_id]
            if key in known:
                continue
            last = newest[key]
            known[key] = []
            if last is None:
                continue
            if last["effective_at_ms"] < point.effective_at_ms:
                known[key].append(_Known(last["effective_at_ms"], last["observed_at_ms"], last["nano_usd_per_hour"]))
            else:
                late.append((key, key, point.effective_at_ms, last["effective_at_ms"] + 1))
        for start in range(0, len(late), _ASKED):
            statement = _within(self._listed(late[start : start + _ASKED]))
            answers = self._connection.exec_driver_sql(statement).all()
            for key, *entry, _ in whole_numbers("price_point", answers):
                known[key].append(_Known(*entry))
        return known

    def _renew(self, rows: Sequence[dict[str, int]]) -> None:
        """Replaces the rows of price_now of the changed offers."""
        number = self._changed(PRICES)
        for start in range(0, len(rows), _ASKED):
            part = rows[start : start + _ASKED]
            listed = ", ".join(str(row["offer_key"]) for row in part)
            self._connection.exec_driver_sql(f"DELETE FROM price_now WHERE offer_key IN ({listed})")
        self._insert_many(price_now, [{**row, "changed": number} for row in rows])

    def _forget_days(self, first_day: dict[int, int]) -> None:
        """Deletes the daily summaries from these days on, because a late price made them wrong."""
        today = self._clock.now_ms() // DAY_MS
        over = [{"number": key, "first": day} for key, day in first_day.items() if day < today]
        if over:
            self._connection.execute(_FORGET, over)

    def _source_keys(self, names: set[str]) -> dict[str, int]:
        wanted = {"names": sorted(names)}
        known = {row.name: row.key for row in self._connection.execute(_SOURCES, wanted)}
        if known.keys() == names:
            return known
        for name in sorted(names - known.keys()):
            self._insert(price_source, name=name)
        return {row.name: row.key for row in self._connection.execute(_SOURCES, wanted)}


_FIRST = (
    select(offer.c.id, func.min(price_point.c.effective_at_ms))
    .join(price_point, price_point.c.offer_key == offer.c.key)
    .where(offer.c.id.in_(bindparam("ids", expanding=True)))
    .group_by(offer.c.id)
)
_SOURCE_NAMES = select(price_source.c.key, price_source.c.name)
_SOURCES = select(price_source.c.name, price_source.c.key).where(
    price_source.c.name.in_(bindparam("names", expanding=True))
)
_Point = price_point.alias("candidate").c
_FORGET = delete(price_day).where(
    price_day.c.offer_key == bindparam("number"), price_day.c.day >= bindparam("first", type_=Number)
)


_AT: BindParameter[int] = bindparam("at_ms", type_=Number)
_FLAGGED = (
    select(price_flag.c.seq)
    .where(price_flag.c.offer_key == offer.c.key, price_flag.c.opened_ms <= _AT)
    .where(or_(price_flag.c.cleared_ms.is_(None), price_flag.c.cleared_ms > _AT))
    .correlate(offer)
    .exists()
)


def newest_known(at_ms: ColumnElement[int]) -> ColumnElement[int]:
    """The time of an offer's price as known at `at_ms`: an index look-up, never a scan."""
    return (
        select(_Point.effective_at_ms)
        .where(_Point.offer_key == offer.c.key, _Point.effective_at_ms <= at_ms, _Point.observed_at_ms <= at_ms)
        .order_by(_Point.effective_at_ms.desc())
        .limit(1)
        .correlate(offer)
        .scalar_subquery()
    )


def _points(table: str, rows: Sequence[Row[Any]]) -> list[PricePoint]:
    return quickly(rows, _SHAPES, _point, partial(record, PricePoint, table))


def _point(offer_id: str, price: int, effective_at_ms: int, observed_at_ms: int, source: str) -> PricePoint:
    """Raises ValueError for values that `record` refuses."""
    if price < 0 or not (EARLIEST_MS <= effective_at_ms <= LATEST_MS and EARLIEST_MS <= observed_at_ms <= LATEST_MS):
        raise ValueError("out of range")
    return PricePoint(offer_id, price, effective_at_ms, observed_at_ms, source)


def _points_of(prices: Table) -> Select[Any]:
    """The columns of PricePoint from a table shaped like price_point."""
    return (
        select(
            offer.c.id.label("offer_id"),
            prices.c.nano_usd_per_hour,
            prices.c.effective_at_ms,
            prices.c.observed_at_ms,
            price_source.c.name.label("source"),
        )
        .join(prices, prices.c.offer_key == offer.c.key)
        .join(price_source, price_source.c.key == prices.c.source_key)
        .select_from(offer)
    )


_NEW_BY_THEN = (price_now.c.effective_at_ms <= _AT) & (price_now.c.observed_at_ms <= _AT)
_NEWEST_LISTED = _points_of(price_now).where(offer.c.listed).order_by(offer.c.id)
_NEWEST_OF = _NEWEST_LISTED.where(offer.c.provider.in_(bindparam("names", expanding=True)))
_NEWEST_KNOWN_AT = _points_of(price_now).where(_NEW_BY_THEN)
_OLDER_KNOWN_AT = (  # few, unless the time is in the past
    _points_of(price_point)
    .where(offer.c.key.in_(select(price_now.c.offer_key).where(~_NEW_BY_THEN)))
    .where(price_point.c.effective_at_ms == newest_known(_AT))
)
_NOT_IN_FORCE = select(offer.c.id).join(price_now, price_now.c.offer_key == offer.c.key).where(~_NEW_BY_THEN)
_NOT_IN_FORCE_OF = _NOT_IN_FORCE.where(offer.c.id.in_(bindparam("ids", expanding=True)))
_NOT_NEW_BY_THEN = (
    select(price_now.c.offer_key).where(price_now.c.offer_key == offer.c.key, ~_NEW_BY_THEN).correlate(offer).exists()
)
_OF_THESE = offer.c.id.in_(bindparam("ids", expanding=True))
_PAYABLE = (_NEWEST_KNOWN_AT, _OLDER_KNOWN_AT)
_PAYABLE_OF = (
    _NEWEST_KNOWN_AT.where(_OF_THESE),
    _points_of(price_point).where(_OF_THESE, _NOT_NEW_BY_THEN, price_point.c.effective_at_ms == newest_known(_AT)),
)
_ELIGIBLE = (_NEWEST_KNOWN_AT.where(~_FLAGGED), _OLDER_KNOWN_AT.where(~_FLAGGED))


def _of_keys(keys: Sequence[int]) -> str:
    """A query for price_now of these offers. The integers are literals: parameters are limited and many times
    slower."""
    named = "offer_key, effective_at_ms, observed_at_ms, nano_usd_per_hour, source_key"
    return f"SELECT {named} FROM price_now WHERE offer_key IN ({', '.join(map(str, keys))})"


def _in_force(asked: str) -> str:
    """The price in force for each (number, offer key, time) of a query: one index look-up each."""
    return (
        f"WITH asked (number, offer_key, at_ms) AS ({asked}) "
        "SELECT asked.number, (SELECT point.nano_usd_per_hour FROM price_point AS point "
        "WHERE point.offer_key = asked.offer_key AND point.effective_at_ms <= asked.at_ms "
        "ORDER BY point.effective_at_ms DESC LIMIT 1) FROM asked"
    )


INSIDE = (
    "asked JOIN price_point AS point ON point.offer_key = asked.offer_key "
    "AND point.effective_at_ms >= coalesce((SELECT max(before.effective_at_ms) FROM price_point AS before "
    "WHERE before.offer_key = asked.offer_key AND before.effective_at_ms <= asked.start_ms), asked.start_ms) "
    "AND point.effective_at_ms < asked.end_ms"
)
"""The points of each (number, offer key, start, end) `asked` for, with the one in force at the start."""


def _within(asked: str) -> str:
    """The points for each (number, offer key, start, end) of a query, from the one in force at the start to the last
    before the end."""
    return (
        f"WITH asked (number, offer_key, start_ms, end_ms) AS ({asked}) "
        "SELECT asked.number, point.effective_at_ms, point.observed_at_ms, point.nano_usd_per_hour, point.source_key "
        f"FROM {INSIDE} ORDER BY asked.number, point.effective_at_ms"
    )


def _mean_within(asked: str) -> str:
    """The time-weighted mean price for each (number, offer key, start, end) of a query."""
    return (
        f"WITH asked (number, offer_key, start_ms, end_ms) AS ({asked}), "
        "held AS (SELECT asked.number, point.nano_usd_per_hour AS price, "
        "CASE WHEN point.effective_at_ms > start_ms THEN point.effective_at_ms ELSE start_ms END AS since_ms, "
        "lead(point.effective_at_ms, 1, end_ms) OVER each_offer AS until_ms "
        f"FROM {INSIDE} WINDOW each_offer AS (PARTITION BY asked.number ORDER BY point.effective_at_ms)) "
        "SELECT number, CAST(round(CAST(sum(CAST(price AS DOUBLE PRECISION) * (until_ms - since_ms)) "
        "/ sum(until_ms - since_ms) AS NUMERIC)) AS BIGINT) "
        "FROM held GROUP BY number HAVING sum(until_ms - since_ms) > 0"
    )


def _is_at(series: Sequence[_Known], place: int, effective_at_ms: int) -> bool:
    """Whether a price at `place` took effect at this time."""
    return place < len(series) and series[place].effective_at_ms == effective_at_ms


def _adds_nothing(before: _Known, entry: _Known) -> bool:
    """True for a repeated price, unless the one before was observed later: in between, only `entry` was known."""
    return before.nano_usd_per_hour == entry.nano_usd_per_hour and before.observed_at_ms <= entry.observed_at_ms
