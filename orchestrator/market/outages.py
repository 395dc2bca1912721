"""Outages: how long spot capacity that is away is expected to stay away, learned from the outages that were seen to
end.

The mean length of an outage has a gamma posterior for each offer. It is shrunk towards the mean of the offer's
provider, that towards the mean of all offers, and that towards the prior: an offer with few observations is treated
like the others. The present outage counts with the time that it is known to have lasted, so the longer it lasts, the
longer it is expected to last. No launch is tried before the back-off has ended (availability.py), so a wait includes
the rest of the back-off.
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
"""How much the mean of a wider group counts against the observations of a narrower one, in ended outages."""


def mean_by_group_h(group: Ints, returns: Ints, away_ms: Ints) -> Floats:
    """The expected length (hours) of an outage, by group of offers.

    The arguments are columns over the offers: the number of the offer's group, how many outages were seen to end, and
    the time (ms) that capacity was away.
    """
    groups = int(group.max(initial=0)) + 1
    seen = np.flatnonzero((returns > 0) | (away_ms > 0))
    away_h = away_ms[seen] / MS_PER_HOUR
    ended, spent_h = np.bincount(group[seen], returns[seen], groups), np.bincount(group[seen], away_h, groups)
    everywhere_h = (WEIGHT * OUTAGE_H + away_h.sum()) / (WEIGHT + ended.sum())
    mean: Floats = (WEIGHT * everywhere_h + spent_h) / (WEIGHT + ended)
    return mean


def mean_outage_h(of_group_h: Floats, returns: Ints, away_ms: Ints) -> Floats:
    """The expected length (hours) of an outage of each offer. `of_group_h` is the mean of each offer's group, as from
    `mean_by_group_h`."""
    mean: Floats = (WEIGHT * of_group_h + away_ms / MS_PER_HOUR) / (WEIGHT + returns)
    return mean


def expected_wait_s(mean_h: Floats, *, at_ms: int, last_sign_ms: Ints, until_ms: Ints) -> Floats:
    """Seconds until a launch is expected to succeed, over offers whose outages last `mean_h` hours on average.

    This is the rest of the back-off, plus the expected rest of the outage if it has not ended by then. It is 0 if there
    was no sign of missing capacity since the last launch (`last_sign_ms` is -1).
    """
    rest_ms = np.maximum(until_ms - at_ms, 0)
    unseen_h = (at_ms - last_sign_ms + rest_ms) / MS_PER_HOUR
    wait_s = rest_ms / 1000 + 3600 * mean_h * np.exp(-unseen_h / mean_h)
    return np.where(last_sign_ms >= 0, wait_s, 0.0)
