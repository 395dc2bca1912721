"""Price changes: append-only, each with the instant it took effect and the instant it was learned. Must not know jobs.

Questions about many offers or runs are one statement, answered by walks down the key (offer, instant): the price in
force is the newest entry before the instant that was asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    bindparam,
    column,
    delete,
    func,
    or_,
    select,
    values,
)

from orchestrator.store.offers import OfferRows, batches
from orchestrator.store.schema import offer, price_day, price_flag, price_point, price_source
from orchestrator.store.transaction import insert_into
from orchestrator.store.types import Number
from providers.price import PricePoint

DAY_MS = 86_400_000
_ASKED = 2000  # intervals in one statement


class Interval(NamedTuple):
    """From `start_ms` up to, not including, `end_ms`."""

    offer_id: str
    start_ms: int
    end_ms: int


class _Known(NamedTuple):
    effective_at_ms: int
    observed_at_ms: int
    nano_usd_per_hour: int


class PriceRows(OfferRows):
    def add_prices(self, points: Iterable[PricePoint]) -> int:
        """Store what changed; returns how many points that were.

        A point is left out when its offer has one of the same `effective_at_ms` already, or when the one before it
        has the same price and was observed no later. So history that is learned late must come with every change up to
        the present, as ProvidesPriceHistory gives it. Raises NotFoundError for an offer that was never put.
        """
        ordered = sorted(points, key=lambda point: (point.effective_at_ms, point.observed_at_ms))
        keys = self._offer_keys(point.offer_id for point in ordered)
        sources = self._source_keys({point.source for point in ordered})
        known = self._known_around(ordered, keys)
        fresh = []
        first_day: dict[int, int] = {}
        for point in ordered:
            key = keys[point.offer_id]
            series = known.setdefault(key, [])
            place = bisect_left(series, point.effective_at_ms, key=lambda entry: entry.effective_at_ms)
            if place < len(series) and series[place].effective_at_ms == point.effective_at_ms:
                continue
            entry = _Known(point.effective_at_ms, point.observed_at_ms, point.nano_usd_per_hour)
            if place and _adds_nothing(series[place - 1], entry):
                continue
            series.insert(place, entry)
            first_day.setdefault(key, point.effective_at_ms // DAY_MS)
            fresh.append(
                {
                    "offer_key": key,
                    "effective_at_ms": point.effective_at_ms,
                    "observed_at_ms": point.observed_at_ms,
                    "nano_usd_per_hour": point.nano_usd_per_hour,
                    "source_key": sources[point.source],
                }
            )
        if fresh:
            self._connection.execute(insert_into(price_point), fresh)
            self._forget_days(first_day)
        return len(fresh)

    def prices_as_of(self, at_ms: int) -> list[PricePoint]:
        """Per offer the newest price that was in force and known at `at_ms`; ordered by offer id.

        Offers whose newest report was flagged then (FlagRows) are left out: their price is not fit to decide on.
        """
        return [PricePoint(*row) for row in self._connection.execute(_KNOWN_AT, {"at_ms": at_ms})]

    def newest_prices(self) -> list[PricePoint]:
        """Per listed offer the newest change, flagged or not, in force or announced; ordered by offer id."""
        return [PricePoint(*row) for row in self._connection.execute(_NEWEST_LISTED)]

    def price_points(self, offer_id: str, start_ms: int, end_ms: int) -> list[PricePoint]:
        """Everything about an offer's price from the one in force at `start_ms` to those before `end_ms`, ascending."""
        return self.price_points_of([Interval(offer_id, start_ms, end_ms)])[0]

    def price_points_of(self, intervals: Sequence[Interval]) -> list[list[PricePoint]]:
        """As `price_points`, of many intervals at once."""
        sources = dict(row for row in self._connection.execute(_SOURCE_NAMES))
        found: list[list[PricePoint]] = [[] for _ in intervals]
        for number, row in self._asked(intervals):
            name, source = intervals[number].offer_id, sources[row.source_key]
            point = PricePoint(name, row.nano_usd_per_hour, row.effective_at_ms, row.observed_at_ms, source)
            found[number].append(point)
        return found

    def price_changes(self, offer_id: str, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
        """(effective_at_ms, nano_usd_per_hour) from the one in force at `start_ms` (if any is known) to those before
        `end_ms`, ascending: the argument of providers.money.cost_nano_usd."""
        return self.price_changes_of([Interval(offer_id, start_ms, end_ms)])[0]

    def price_changes_of(self, intervals: Sequence[Interval]) -> list[list[tuple[int, int]]]:
        """As `price_changes`, of many intervals at once, in their order."""
        found: list[list[tuple[int, int]]] = [[] for _ in intervals]
        for number, row in self._asked(intervals):
            found[number].append((row.effective_at_ms, row.nano_usd_per_hour))
        return found

    def prices_at(self, instants: Sequence[tuple[str, int]]) -> list[int | None]:
        """nano-USD per hour of each (offer id, instant), as known now; None where no price was in force yet."""
        found: list[int | None] = [None] * len(instants)
        for number, row in self._asked([Interval(offer_id, at_ms, at_ms) for offer_id, at_ms in instants]):
            found[number] = row.nano_usd_per_hour
        return found

    def _asked(self, intervals: Sequence[Interval]) -> Iterable[tuple[int, Any]]:
        """(index of the interval, row), ascending in both."""
        keys = self._offer_keys({each.offer_id for each in intervals}, strict=False)
        rows = [
            (number, keys[each.offer_id], each.start_ms, max(each.end_ms, each.start_ms + 1))
            for number, each in enumerate(intervals)
            if each.offer_id in keys
        ]
        for start in range(0, len(rows), _ASKED):
            for row in self._connection.execute(_within(rows[start : start + _ASKED])):
                yield row.number, row

    def _known_around(self, points: Sequence[PricePoint], keys: dict[str, int]) -> dict[int, list[_Known]]:
        """Per offer key what is stored from the price in force at its first point on; of most, the newest alone."""
        first: dict[int, int] = {}
        for point in points:
            first.setdefault(keys[point.offer_id], point.effective_at_ms)
        known: dict[int, list[_Known]] = {}
        late = []
        for batch in batches(keys):
            numbers = [keys[name] for name in batch]
            for row in self._connection.execute(_NEWEST, {"keys": numbers}):
                if row.effective_at_ms < first[row.key]:
                    known[row.key] = [_Known(row.effective_at_ms, row.observed_at_ms, row.nano_usd_per_hour)]
                else:
                    late.append((row.key, row.key, first[row.key], row.effective_at_ms + 1))
        for start in range(0, len(late), _ASKED):
            for row in self._connection.execute(_within(late[start : start + _ASKED])):
                entry = _Known(row.effective_at_ms, row.observed_at_ms, row.nano_usd_per_hour)
                known.setdefault(row.number, []).append(entry)
        return known

    def _forget_days(self, first_day: dict[int, int]) -> None:
        """A price learned late makes roll-ups from its day on wrong: they are made again."""
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


_SOURCE_NAMES = select(price_source.c.key, price_source.c.name)
_SOURCES = select(price_source.c.name, price_source.c.key).where(
    price_source.c.name.in_(bindparam("names", expanding=True))
)
_Point = price_point.alias("candidate").c
_FORGET = delete(price_day).where(
    price_day.c.offer_key == bindparam("number"), price_day.c.day >= bindparam("first", type_=Number)
)


def newest_point(*bounds: ColumnElement[bool]) -> ColumnElement[int]:
    """The instant of an offer's newest point within `bounds`: one walk down the key, never a scan of all prices."""
    return (
        select(_Point.effective_at_ms)
        .where(_Point.offer_key == offer.c.key, *bounds)
        .order_by(_Point.effective_at_ms.desc())
        .limit(1)
        .correlate(offer)
        .scalar_subquery()
    )


def _with_newest(*bounds: ColumnElement[bool]) -> Select[Any]:
    instant = price_point.c.effective_at_ms == newest_point(*bounds)
    return (
        select(
            offer.c.id.label("offer_id"),
            price_point.c.nano_usd_per_hour,
            price_point.c.effective_at_ms,
            price_point.c.observed_at_ms,
            price_source.c.name.label("source"),
        )
        .select_from(offer)
        .join(price_point, (price_point.c.offer_key == offer.c.key) & instant)
        .join(price_source, price_source.c.key == price_point.c.source_key)
        .order_by(offer.c.id)
    )


_AT: BindParameter[int] = bindparam("at_ms", type_=Number)
_FLAGGED = (
    select(price_flag.c.seq)
    .where(price_flag.c.offer_key == offer.c.key, price_flag.c.opened_ms <= _AT)
    .where(or_(price_flag.c.cleared_ms.is_(None), price_flag.c.cleared_ms > _AT))
    .correlate(offer)
    .exists()
)
KNOWN_AT = (_Point.effective_at_ms <= _AT, _Point.observed_at_ms <= _AT)
_KNOWN_AT = _with_newest(*KNOWN_AT).where(~_FLAGGED)
_NEWEST_LISTED = _with_newest().where(offer.c.listed)
_NEWEST = (
    select(offer.c.key, price_point.c.effective_at_ms, price_point.c.observed_at_ms, price_point.c.nano_usd_per_hour)
    .select_from(offer)
    .join(price_point, (price_point.c.offer_key == offer.c.key) & (price_point.c.effective_at_ms == newest_point()))
    .where(offer.c.key.in_(bindparam("keys", expanding=True)))
)


def _within(rows: Sequence[tuple[int, int, int, int]]) -> Select[Any]:
    """Per (number, offer key, start, end) the point in force at the start and those after it, before the end.

    The rows stand in the statement itself: as parameters, they would be more than SQLite takes.
    """
    names = [column(name, Number) for name in ("number", "offer_key", "start_ms", "end_ms")]
    asked = values(*names, name="asked", literal_binds=True).data(rows).cte("asked")
    in_force = (
        select(func.max(_Point.effective_at_ms))
        .where(_Point.offer_key == asked.c.offer_key, _Point.effective_at_ms <= asked.c.start_ms)
        .correlate(asked)
        .scalar_subquery()
    )
    return (
        select(
            asked.c.number,
            price_point.c.effective_at_ms,
            price_point.c.observed_at_ms,
            price_point.c.nano_usd_per_hour,
            price_point.c.source_key,
        )
        .select_from(asked)
        .join(
            price_point,
            (price_point.c.offer_key == asked.c.offer_key)
            & (price_point.c.effective_at_ms >= func.coalesce(in_force, asked.c.start_ms))
            & (price_point.c.effective_at_ms < asked.c.end_ms),
        )
        .order_by(asked.c.number, price_point.c.effective_at_ms)
    )


def _adds_nothing(before: _Known, entry: _Known) -> bool:
    """A repeated price is no change, unless the one before was learned later: in between, only `entry` was known."""
    return before.nano_usd_per_hour == entry.nano_usd_per_hour and before.observed_at_ms <= entry.observed_at_ms
