"""Outlook: the expected cost and time to finish on each offer as a plan shows them, and the best offers by them. Offers
are ranked by the numbers that are shown.

These figures include what follows a loss (interruptions.py) and a deadline (spread.py), so they take longer to compute
than the plain course (cost.py). In a large market, they are computed only for offers that may be among the best. The
plain course is a lower bound: an offer never costs less and, without a deadline, never finishes sooner. All other
offers keep these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.interruptions import fallbacks
from orchestrator.policy.ranking.limits import Limits
from orchestrator.policy.ranking.pool import Floats, Rows
from orchestrator.policy.ranking.spread import Spreads

FIRST = 8  # offers that are computed first, for each one that is requested: those with the best bounds

Keys = tuple[Floats, ...]
KeysOf = Callable[[Rows], Keys]
"""The sort keys (smaller is better, the main one first) of some positions of a pool."""


class Shown(NamedTuple):
    """The figures shown for an offer: expected nano-USD and market seconds to finish, and their 95th percentiles."""

    cost: float
    seconds: float
    most_cost: float
    most_seconds: float


class Outlook:
    """The figures of a forecast's offers. `cost` (nano-USD) and `seconds`, over the pool, are exact for the offers that
    were computed, and lower bounds for the others.

    `open_at` are the positions of the offers that can be used. `others` are the market rows to which the job may go
    after a loss. `instead` is a row that is shown next to the best ones, and so is computed together with them.
    """

    def __init__(self, forecast: Forecast, open_at: Rows, limits: Limits, instead: int | None = None) -> None:
        pool, mid = forecast.pool, forecast.mid
        self._forecast, self.limits = forecast, limits
        self._beside = [] if instead is None else [instead]
        self.others: list[int] = pool.rows[fallbacks(forecast, open_at, limits)].tolist()
        self._spreads: dict[Forecast, Spreads] = {}
        if pool.small:
            self.cost, self.seconds = self.spreads(forecast).expected
            self._known = np.ones(len(pool.rows), np.bool_)
        else:
            self.cost = mid.cost.copy()
            self.seconds = mid.seconds.copy() if limits.left_s is None else np.zeros(len(pool.rows))
            self._known = np.zeros(len(pool.rows), np.bool_)

    def look_at(self, positions: Rows) -> None:
        """Replace the bounds of some positions of the pool by exact figures."""
        fresh = positions[~self._known[positions]]
        if not fresh.size:
            return
        rows = self._forecast.pool.rows[fresh]
        few = self._forecast.over([*rows.tolist(), *self.others, *self._beside])
        cost, seconds = self.spreads(few).expected
        at = np.searchsorted(few.pool.rows, rows)
        self.cost[fresh], self.seconds[fresh], self._known[fresh] = cost[at], seconds[at], True

    def of(self, row: int) -> tuple[float, float]:
        """The exact (nano-USD, seconds) of a row of the pool."""
        at = self._forecast.pool.at(row)
        if not self._known[at]:
            self.look_at(np.array([at]))
        return float(self.cost[at]), float(self.seconds[at])

    def shown(self, row: int) -> Shown:
        """All figures shown for a row of the pool."""
        few = self._forecast.over([row, *self.others])
        found, at = self.spreads(few).going(np.zeros(len(few.pool.rows), np.bool_)), few.pool.at(row)
        return Shown(*(float(each[at]) for each in (found.mid_cost, found.mid_s, found.high_cost, found.high_s)))

    def time_to_wait(self, row: int) -> float:
        """The share of the losses at a row after which there is time to wait for capacity."""
        few = self._forecast.over([row, *self.others])
        return float(self.spreads(few).time_to_wait[few.pool.at(row)])

    def spreads(self, forecast: Forecast, more: Sequence[int] = ()) -> Spreads:
        """All figures shown for the offers of a forecast, if the job may also use the rows in `more` after a loss. The
        rows of the forecast must include `more` and `others`."""
        if more:
            return Spreads(forecast, [*self.others, *more], self.limits)
        if forecast not in self._spreads:
            self._spreads[forecast] = Spreads(forecast, self.others, self.limits)
        return self._spreads[forecast]

    def best(self, candidates: Rows, keys_of: KeysOf, count: int, current: int | None = None) -> Rows:
        """The best of the candidates (positions in the pool), best first, with exact figures.

        There are at least `count`, and all candidates that are no worse than `current`.
        """
        if len(candidates) <= 2 * FIRST * count:
            self.look_at(candidates)
            return candidates[_sorted(keys_of(candidates))]
        bounds = keys_of(candidates)
        first = candidates[_first(bounds, FIRST * count)]
        self.look_at(first)
        exact = keys_of(first)
        cut = _at(exact, int(_sorted(exact)[count - 1]))
        if current is not None:
            here = np.array([current])
            self.look_at(here)
            cut = max(cut, _at(keys_of(here), 0))
        self.look_at(candidates[_up_to(bounds, cut)])
        found = candidates[_up_to(keys_of(candidates), cut)]
        return found[_sorted(keys_of(found))]


def _sorted(keys: Keys) -> Rows:
    return np.lexsort(keys[::-1])


def _at(keys: Keys, position: int) -> tuple[float, ...]:
    return tuple(float(key[position]) for key in keys)


def _first(keys: Keys, count: int) -> Rows:
    """The indices of the first `count` keys, and of those that tie with the last of them. If too many tie, only those
    with the best second key."""
    main, second = keys[:2]
    limit = float(np.partition(main, count)[count])
    ahead, level = np.flatnonzero(main < limit), np.flatnonzero(main == limit)
    if len(level) > count:
        level = level[np.argpartition(second[level], count)[:count]]
    return np.concatenate((ahead, level))


def _up_to(keys: Keys, cut: tuple[float, ...]) -> NDArray[np.bool_]:
    """Which keys are no worse than the cut."""
    no_worse: NDArray[np.bool_] = keys[-1] <= cut[-1]
    for key, last in zip(keys[-2::-1], cut[-2::-1], strict=True):
        no_worse = (key < last) | ((key == last) & no_worse)
    return no_worse
