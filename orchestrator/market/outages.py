"""Outages: how long spot capacity that is away is expected to stay away, from the outages that were seen to end.

The mean length of an outage has a gamma posterior by offer, shrunk towards that of its provider, which is shrunk
towards that of all offers, which is shrunk towards the prior: an offer that was seen little behaves like the others.
The present outage counts with the time that it is known to have lasted, so that an outage which lasts is expected to
last longer. Looking is possible only when the back-off has ended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from providers.money import MS_PER_HOUR

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OUTAGE_H = 4.0
"""Prior mean length of an outage (hours); assumed. It fades as outages are seen to end."""
WEIGHT = 1.5
"""The weight of each wider group, in ended outages, against what was seen of the narrower one."""


def mean_by_group_h(group: Ints, returns: Ints, away_ms: Ints) -> Floats:
    """The expected length (hours) of an outage in each group of offers. The columns are over the offers: the number of
    the group that each belongs to, its ended outages and the time (ms) that it was away."""
    groups = int(group.max(initial=0)) + 1
    seen = np.flatnonzero((returns > 0) | (away_ms > 0))
    away_h = away_ms[seen] / MS_PER_HOUR
    ended, spent_h = np.bincount(group[seen], returns[seen], groups), np.bincount(group[seen], away_h, groups)
    everywhere_h = (WEIGHT * OUTAGE_H + away_h.sum()) / (WEIGHT + ended.sum())
    mean: Floats = (WEIGHT * everywhere_h + spent_h) / (WEIGHT + ended)
    return mean


def mean_outage_h(of_group_h: Floats, returns: Ints, away_ms: Ints) -> Floats:
    """The expected length (hours) of an outage of some offers, given that in the group of each (`mean_by_group_h`)."""
    mean: Floats = (WEIGHT * of_group_h + away_ms / MS_PER_HOUR) / (WEIGHT + returns)
    return mean


def expected_wait_s(mean_h: Floats, *, at_ms: int, last_sign_ms: Ints, until_ms: Ints) -> Floats:
    """Seconds until a launch of some offers, whose outages last `mean_h`, is expected to succeed: the rest of the
    back-off, then what is left of the outage if it has not ended by then. 0 without a sign of missing capacity (-1)
    since the last launch."""
    rest_ms = np.maximum(until_ms - at_ms, 0)
    unseen_h = (at_ms - last_sign_ms + rest_ms) / MS_PER_HOUR
    wait_s = rest_ms / 1000 + 3600 * mean_h * np.exp(-unseen_h / mean_h)
    return np.where(last_sign_ms >= 0, wait_s, 0.0)
