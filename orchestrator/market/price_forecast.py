"""Price forecasts for rows of a market: the mean price expected over a coming time, as a multiple of the present price.

The multiples are tabulated once per row and horizon; a job then only interpolates for its own duration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.cached_property import cached_property
from orchestrator.market.reversion import DEVIATIONS, HORIZONS_H, UNKNOWN, Course

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_HOURS = np.array((0.0, *HORIZONS_H))  # over no time at all, the mean is the present price
_NUMBERS = np.arange(len(_HOURS))
_KNOTS = np.array(DEVIATIONS)
_STEPS = np.diff(_KNOTS)
_EXPECTED, _LOW_AND_HIGH = slice(0, 1), slice(1, 3)  # of the first axis of a Course


class PriceForecast:
    """The price forecast of rows with this `price` and `level`, the usual price (both nano-USD per hour; negative:
    unknown).

    `course` gives the course of each row, as an index into `courses`. Only spot prices are expected to change;
    on-demand prices stay as they are.
    """

    def __init__(self, price: Ints, level: Floats, spot: Bools, course: Ints, courses: Sequence[Course]) -> None:
        self._level = level
        self._spot = spot
        self._courses = tuple(dict.fromkeys(courses))  # providers may share one
        self._course = np.array([self._courses.index(each) for each in courses], np.int64)[course]
        self._price = price
        self._tables: dict[int, Floats] = {}
        self.stays = all(each is UNKNOWN for each in courses)

    def mean(self, seconds: Floats, cell: Ints) -> Floats:
        """The expected mean price over `seconds`, as a multiple of the present price, over the rows. `seconds` is given
        by cell; `cell` is the cell of each row."""
        if self.stays:
            return np.ones(len(cell))
        means: Floats = self._at(_EXPECTED, *_horizon(seconds, cell))[0]
        return means

    def range(self, seconds: Floats, cell: Ints) -> Floats:
        """The 5th and 95th percentile (first axis) of the mean price over `seconds`, as multiples of the expected
        mean."""
        low, share = _horizon(seconds, cell)
        found = self._at(_LOW_AND_HIGH, low, share)
        return found if self.stays else found / self._at(_EXPECTED, low, share)

    def price_for(self, row: int, mean: float, seconds: float) -> float:
        """The present price (nano-USD per hour) at which a row's expected mean over `seconds` would be `mean`."""
        course, level = self._courses[int(self._course[row])], float(self._level[row])
        if self.stays or not self._spot[row]:
            return mean
        at = float(np.interp(seconds / 3600, _HOURS, _NUMBERS))
        low = int(at)
        tables = np.vstack([np.ones(len(DEVIATIONS)), course.table[0]])
        ratio = tables[low] + (at - low) * (tables[min(low + 1, len(_HOURS) - 1)] - tables[low])
        if level <= 0:
            return mean / float(np.interp(0.0, DEVIATIONS, ratio))
        means = np.log(ratio) + DEVIATIONS
        wanted = float(np.log(max(mean, 1.0) / level))
        if means[0] < wanted < means[-1]:
            return float(level * np.exp(np.interp(wanted, means, DEVIATIONS)))
        return mean / float(ratio[0 if wanted <= means[0] else -1])

    def _at(self, which: slice, low: Ints, share: Floats) -> Floats:
        table, rows = self._table(which), np.arange(len(low))
        below = table[:, low, rows]
        found: Floats = below + share * (table[:, low + 1, rows] - below)
        return found

    def _table(self, which: slice) -> Floats:
        """Multiples of the present price, by quantile, horizon and row."""
        known = self._tables.get(which.start)
        if known is None:
            known = np.ones((which.stop - which.start, len(_HOURS), len(self._price)))
            for course, (rows, knot, beyond) in zip(self._courses, self._moving, strict=True):
                columns, slopes = (each[which] for each in course.logs)
                logs = slopes.take(knot, axis=2)
                logs *= beyond
                logs += columns.take(knot, axis=2)
                known[:, 1:, rows] = np.exp(logs, out=logs)
            self._tables[which.start] = known
        return known

    @cached_property
    def _moving(self) -> list[tuple[Ints, Ints, Floats]]:
        """For each course: the rows whose price changes, the index of the knot below each row's deviation, and the
        distance of the deviation from that knot."""
        found = []
        for code in range(len(self._courses)):
            rows = np.flatnonzero(self._spot & (self._course == code))
            deviation = np.minimum(np.maximum(self._deviation(rows), _KNOTS[0]), _KNOTS[-1])
            knot = np.minimum(np.searchsorted(_KNOTS, deviation, side="right"), len(_STEPS)) - 1
            found.append((rows, knot, deviation - _KNOTS[knot]))
        return found

    def _deviation(self, rows: Ints) -> Floats:
        """ln(price / level); 0 where either is not known."""
        price, level = self._price[rows], self._level[rows]
        known = (price > 0) & (level > 0)
        return np.log(np.where(known, price, 1) / np.where(known, level, 1))


def _horizon(seconds: Floats, cell: Ints) -> tuple[Ints, Floats]:
    """For each row: the index of the last horizon within `seconds` (given by cell), and the fraction of the way to the
    next one."""
    at = np.interp(seconds / 3600, _HOURS, _NUMBERS)
    low = np.minimum(at.astype(np.int64), len(HORIZONS_H) - 1)
    return low[cell], (at - low)[cell]
