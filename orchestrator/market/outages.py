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


def mean_outage_h(rows: Ints, *, group: Ints, returns: Ints, away_ms: Ints) -> Floats:
    """The expected length (hours) of an outage of each of some rows. The columns are over all offers: the number of
    the group that each belongs to, its ended outages and the time (ms) that it was away."""
    away_h = away_ms / MS_PER_HOUR
    everywhere_h = (WEIGHT * OUTAGE_H + away_h.sum()) / (WEIGHT + returns.sum())
    groups = int(group.max(initial=0)) + 1
    ended, spent_h = np.bincount(group, returns, groups), np.bincount(group, away_h, groups)
    of_group_h = (WEIGHT * everywhere_h + spent_h) / (WEIGHT + ended)
    mean: Floats = (WEIGHT * of_group_h[group[rows]] + away_h[rows]) / (WEIGHT + returns[rows])
    return mean


def expected_wait_s(
    rows: Ints,
    *,
    at_ms: int,
    group: Ints,
    returns: Ints,
    away_ms: Ints,
    last_sign_ms: Ints,
    until_ms: Ints,
) -> Floats:
    """Seconds until a launch is expected to succeed in each of some rows: the rest of the back-off, then what is left
    of the outage if it has not ended by then. 0 without a sign of missing capacity (-1) since the last launch."""
    mean_h = mean_outage_h(rows, group=group, returns=returns, away_ms=away_ms)
    sign, rest_ms = last_sign_ms[rows], np.maximum(until_ms[rows] - at_ms, 0)
    unseen_h = (at_ms - sign + rest_ms) / MS_PER_HOUR
    wait_s = rest_ms / 1000 + 3600 * mean_h * np.exp(-unseen_h / mean_h)
    return np.where(sign >= 0, wait_s, 0.0)
