"""Ahead: the mean prices expected over a coming time, as multiples of the present ones, over rows of a market.

Computed once per row and horizon; a job then only picks its horizon.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.reversion import DEVIATIONS, HORIZONS_H, UNKNOWN, Course

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_HOURS = (0.0, *HORIZONS_H)  # over no time at all the mean is the present price
_EXPECTED, _LOW, _HIGH = range(3)


class Ahead:
    """The price forecast of rows with this `price` and `level` (both nano-USD per hour; negative: unknown). `course` is
    an index into `courses`, by row; on-demand prices do not change."""

    def __init__(self, price: Ints, level: Floats, spot: Bools, course: Ints, courses: Sequence[Course]) -> None:
        self._level = level
        self._spot = spot
        self._course = course
        self._courses = courses
        self._price = price
        self._tables: dict[int, Floats] = {}
        self.stays = all(each is UNKNOWN for each in courses)

    def mean(self, seconds: Floats, cell: Ints) -> Floats:
        """Over the rows, the expected mean over `seconds` (given by cell) as a multiple; `cell` is by row."""
        if self.stays:
            return np.ones(len(cell))
        return self._at(_EXPECTED, seconds, cell)

    def range(self, seconds: Floats, cell: Ints) -> tuple[Floats, Floats]:
        """The 5th and 95th percentile of the mean, as multiples of the expected one."""
        expected = self.mean(seconds, cell)
        return self._at(_LOW, seconds, cell) / expected, self._at(_HIGH, seconds, cell) / expected

    def price_for(self, row: int, mean: float, seconds: float) -> float:
        """The price (nano-USD per hour) at which a row's expected mean over `seconds` would be `mean`."""
        course, level = self._courses[int(self._course[row])], float(self._level[row])
        if self.stays or not self._spot[row]:
            return mean
        at = float(np.interp(seconds / 3600, _HOURS, np.arange(len(_HOURS))))
        low = int(at)
        tables = np.vstack([np.ones(len(DEVIATIONS)), course.table[_EXPECTED]])
        ratio = tables[low] + (at - low) * (tables[min(low + 1, len(_HOURS) - 1)] - tables[low])
        if level <= 0:
            return mean / float(np.interp(0.0, DEVIATIONS, ratio))
        means = np.log(ratio) + DEVIATIONS
        wanted = float(np.log(max(mean, 1.0) / level))
        if means[0] < wanted < means[-1]:
            return float(level * np.exp(np.interp(wanted, means, DEVIATIONS)))
        return mean / float(ratio[0 if wanted <= means[0] else -1])

    def _at(self, which: int, seconds: Floats, cell: Ints) -> Floats:
        table = self._table(which)
        at = np.interp(seconds / 3600, _HOURS, np.arange(len(_HOURS)))
        low = np.minimum(at.astype(np.int64), len(HORIZONS_H) - 1)
        share, low, rows = (at - low)[cell], low[cell], np.arange(len(cell))
        below = table[low, rows]
        found: Floats = below + share * (table[low + 1, rows] - below)
        return found

    def _table(self, which: int) -> Floats:
        """The multiples by horizon and row."""
        if which not in self._tables:
            table = np.ones((len(_HOURS), len(self._price)))
            for code in np.flatnonzero(np.bincount(self._course, minlength=len(self._courses))).tolist():
                rows = np.flatnonzero(self._spot & (self._course == code))
                deviation = self._deviation[rows]
                for horizon, column in enumerate(np.log(self._courses[code].table[which]), 1):
                    table[horizon, rows] = np.exp(np.interp(deviation, DEVIATIONS, column))
            self._tables[which] = table
        return self._tables[which]

    @property
    def _deviation(self) -> Floats:
        """ln(price / level); 0 where either is not known."""
        known = (self._price > 0) & (self._level > 0)
        return np.log(np.where(known, self._price, 1) / np.where(known, self._level, 1))
