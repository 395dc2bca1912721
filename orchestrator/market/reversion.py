"""Reversion: the mean price of a spot machine over the coming hours, learned from past prices. Pure.

Prices return to their usual level, and the lowest of many prices returns the most (the winner's curse). No constant
fits every market, so the return is learned from a market's own history by analogues: when prices were as far from their
level as this one is now, what multiple of the price was their mean over the next H hours, and how much did it vary? The
level of an offer is its mean price so far, as known at the time. A declared prior has the weight of PRIOR_WEIGHT
independent observations, so evidence replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.cached_property import cached_property

Floats = NDArray[np.float64]

HOUR_MS = 3_600_000
HORIZONS_H = (0.5, 1.0, 2.0, 4.0, 8.0, 24.0, 72.0, 168.0)
"""The horizons, in hours. Means over longer times are assumed equal to those over the last horizon."""
DEVIATIONS = (-1.2, -0.85, -0.6, -0.35, -0.15, 0.0, 0.15, 0.35, 0.6, 0.85, 1.2)
"""The values of ln(price / level) for which the course is learned; it is interpolated between them."""
PRIOR_WEIGHT = 20.0
"""The weight of the prior, in independent observations: it takes this many to expect one beyond the 5th percentile."""
_INSTANTS = 96  # observations per offer and horizon, at most
_RAMP = 0.25  # the first part of a history, where the level is not known well enough
_TOGETHER = 0.5  # how much a market's offers move together: 0 not at all, 1 if a hundred tell no more than one
_MOST_RATIO = 10.0  # a larger jump counts as an error (providers.collect.judge)


class Prior(NamedTuple):
    """The assumption for a market without history: prices stay the same on average.

    With a probability of 90 %, the logarithm of their mean over `hold_h` hours or more is between `-down` and `up`
    relative to the present price. Over a shorter time, the interval is proportionally narrower.
    """

    down: float
    up: float
    hold_h: float


CLOUD = Prior(0.10, 0.15, 72.0)
"""Spot prices of clouds change by some percent in a week (GCP's list, 2023 to 2026: a step of 5 % in the median, 22 %
at the 90th percentile)."""


class History(NamedTuple):
    """An offer's prices: each holds from its `at_ms` (ascending) to the next, the last one until `until_ms`."""

    at_ms: NDArray[np.int64]
    price: Floats
    until_ms: int


@dataclass(frozen=True, eq=False)
class Course:
    """The course of a market's prices. `table` is the mean coming price as a multiple of the present one: expected
    value, 5th and 95th percentile (first axis), by horizon (HORIZONS_H) and deviation (DEVIATIONS)."""

    table: Floats

    @cached_property
    def logs(self) -> tuple[Floats, Floats]:
        """(the logarithms of `table`, their slopes between one deviation and the next)."""
        logs = np.log(self.table)
        return logs, np.diff(logs, axis=2) / np.diff(DEVIATIONS)


def course(histories: Iterable[History], prior: Prior = CLOUD) -> Course:
    """Learn the course from the histories of a market's offers.

    The first estimate is for the market as a whole: the share of its deviation that a price loses, and the variation of
    the mean around that. The second is by deviation, because a momentary dip ends sooner than a price that drifted
    away. The first estimate is the prior of the second, and the estimate of each horizon starts from that of the next
    shorter one. The interval always contains the present price.
    """
    seen = [_observed(each) for each in histories if len(each.at_ms)]
    knots = np.array(DEVIATIONS)
    table = np.ones((3, len(HORIZONS_H), len(knots)))
    lost, below, above = 0.0, 0.0, 0.0
    for row, hours in enumerate(HORIZONS_H):
        share = min(hours / prior.hold_h, 1.0)
        below, above = max(below, share * prior.down), max(above, share * prior.up)
        deviation, ratio, weight = (np.concatenate([np.empty(0), *(each[row][i] for each in seen)]) for i in range(3))
        weight /= max(sum(len(each[row][0]) > 0 for each in seen), 1) ** _TOGETHER
        gap, total = np.expm1(-deviation), float(weight.sum())
        trust = total / (total + PRIOR_WEIGHT)
        if total > 0 and (reported := float(weight @ gap**2)) > 0:
            lost += trust * (float(weight @ (gap * (ratio - 1))) / reported - lost)
        usual = np.log1p(min(max(lost, 0.0), 1.0) * np.expm1(-knots))
        off = np.log(ratio) - np.interp(deviation, knots, usual)
        if total > 0:
            # A few observations underestimate the spread (conformal prediction: Vovk et al. 2005, sec. 2).
            least, most = _within(off, weight, min(0.95 * (1 + 1 / total), 1.0)).tolist()
            below, above = below + trust * (-least - below), above + trust * (most - above)
        low, high = usual - below, usual + above
        near = _nearness(deviation) * weight[:, None]
        known = near.sum(axis=0)
        mean = (PRIOR_WEIGHT * np.exp(usual) + near.T @ ratio) / (PRIOR_WEIGHT + known)
        usual = _rising(np.log(mean) + knots) - knots
        off = np.log(ratio) - np.interp(deviation, knots, usual)
        for knot in np.flatnonzero(known).tolist():
            least, most = usual[knot] + _within(off, near[:, knot], 0.95)
            trust = float(known[knot] / (PRIOR_WEIGHT + known[knot]))
            low[knot], high[knot] = low[knot] + trust * (least - low[knot]), high[knot] + trust * (most - high[knot])
        low, high = np.minimum(low, np.minimum(usual, 0)), np.maximum(high, np.maximum(usual, 0))
        table[:, row] = np.exp([usual, low, high])
    return Course(table)


def _observed(history: History) -> list[tuple[Floats, Floats, Floats]]:
    """For each horizon: the deviations of prices from their level as known then, the mean coming price as a multiple of
    the price then, and how many independent observations each of these is worth."""
    at = np.append(history.at_ms, history.until_ms).astype(np.float64) / HOUR_MS
    paid = np.concatenate(([0.0], np.cumsum(history.price * np.diff(at))))
    begin, end = at[0], at[-1]
    first = begin + _RAMP * (end - begin)
    found = []
    for hours in HORIZONS_H:
        last = end - hours
        if last <= first or first <= begin:
            found.append((np.empty(0), np.empty(0), np.empty(0)))
            continue
        count = int(np.clip(2 * (last - first) / hours, 1, _INSTANTS))
        instants = first + (np.arange(count) + 0.5) * (last - first) / count
        price = history.price[np.searchsorted(at, instants, side="right") - 1]
        so_far = np.interp(instants, at, paid)
        usual = so_far / (instants - begin)
        ratio = (np.interp(instants + hours, at, paid) - so_far) / hours / price
        independent = min(float(count), (last - first) / hours)
        found.append(
            (
                np.log(price / usual),
                np.clip(ratio, 1 / _MOST_RATIO, _MOST_RATIO),
                np.full(count, independent / count),
            )
        )
    return found


def _nearness(deviation: Floats) -> Floats:
    """The weight of each observation (rows) for each of DEVIATIONS (columns); each row sums to 1."""
    knots = np.array(DEVIATIONS)
    inside = np.clip(deviation, knots[0], knots[-1])
    upper = np.clip(np.searchsorted(knots, inside), 1, len(knots) - 1)
    share = (inside - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
    near = np.zeros((len(deviation), len(knots)))
    each = np.arange(len(deviation))
    near[each, upper - 1], near[each, upper] = 1 - share, share
    return near


def _rising(values: Floats) -> Floats:
    """Make values non-decreasing: a higher price now never means a lower expected price."""
    rising: Floats = (np.maximum.accumulate(values) + np.minimum.accumulate(values[::-1])[::-1]) / 2
    return rising


def _within(values: Floats, weight: Floats, high: float) -> Floats:
    """The weighted quantiles `1 - high` and `high` of `values`."""
    order = np.argsort(values)
    up_to = np.cumsum(weight[order])
    ranks = np.searchsorted(up_to, np.array((1 - high, high)) * up_to[-1])
    found: Floats = values[order[np.minimum(ranks, len(values) - 1)]]
    return found


UNKNOWN = course(())
"""For a market without history: the prior alone."""
