"""Series: the prices of an offer over a period for a chart, thinned by the database.

The period is divided into many equal parts, and the lowest and the highest price that began in each part are kept: a
chart loses no peak, and only the drawn points leave the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from orchestrator.store.market.price_days import PriceDayRows
from orchestrator.store.market.prices import INSIDE, Interval
from orchestrator.store.rows import whole_numbers


class PriceSeries(NamedTuple):
    """Changes (effective_at_ms, nano-USD per hour), ascending, from the price in force at the start; and the number of
    changes without thinning."""

    changes: list[tuple[int, int]]
    whole: int


class PriceSeriesRows(PriceDayRows):
    """Reads series of prices."""

    def price_series(self, intervals: Sequence[Interval], parts: int) -> list[PriceSeries]:
        """The price changes in each interval; if there are more than 2 x `parts`, the first, the last and two in each
        of the `parts`."""
        known = dict.fromkeys(range(len(intervals)), (0, 0, 0))
        for statement in self._about(intervals, _bounds):
            rows = whole_numbers("price_point", self._connection.exec_driver_sql(statement).all())
            known.update((number, (count, first, last)) for number, count, first, last in rows)
        long = [number for number, (count, _, _) in known.items() if count > 2 * parts]
        short = [number for number in known if number not in long]
        found = dict(zip(short, self.price_changes_of([intervals[number] for number in short]), strict=True))
        for number in long:
            _, first_ms, last_ms = known[number]
            found[number] = self._extremes(intervals[number], first_ms, last_ms, parts)
        return [PriceSeries(found[number], count) for number, (count, _, _) in known.items()]

    def _extremes(self, interval: Interval, first_ms: int, last_ms: int, parts: int) -> list[tuple[int, int]]:
        """The changes at these two times, and the lowest and the highest in each of the interval's parts."""
        name, start, end = interval
        bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
        ends = self.price_changes_of([Interval(name, at_ms, at_ms) for at_ms in (first_ms, last_ms)])
        found = {change for of in ends for change in of}
        for statement in self._about([Interval(name, *part) for part in pairwise(bounds)], _extremes):
            rows = whole_numbers("price_point", self._connection.exec_driver_sql(statement).all())
            found.update((at_ms, price) for at_ms, price in rows)
        return sorted(found)


def _bounds(asked: str) -> str:
    """(number, how many, first, last) of the points for each (number, offer key, start, end) of a query, with the one
    in force at the start."""
    return (
        f"WITH asked (number, offer_key, start_ms, end_ms) AS ({asked}) "
        "SELECT asked.number, count(*), min(point.effective_at_ms), max(point.effective_at_ms) "
        f"FROM {INSIDE} GROUP BY asked.number"
    )


def _extremes(asked: str) -> str:
    """(effective, price) of the lowest and the highest price that began in each (number, offer key, start, end) of a
    query."""
    inside = (
        "SELECT within.effective_at_ms FROM price_point AS within WHERE within.offer_key = asked.offer_key "
        "AND within.effective_at_ms >= asked.start_ms AND within.effective_at_ms < asked.end_ms "
        "ORDER BY within.nano_usd_per_hour{}, within.effective_at_ms LIMIT 1"
    )
    return (
        f"WITH asked (number, offer_key, start_ms, end_ms) AS ({asked}) "
        "SELECT point.effective_at_ms, point.nano_usd_per_hour FROM asked JOIN price_point AS point "
        "ON point.offer_key = asked.offer_key "
        f"AND point.effective_at_ms IN (({inside.format('')}), ({inside.format(' DESC')}))"
    )
