"""Price courses: how the spot prices of each enabled provider behaved lately, read from the store and learned by
orchestrator.market.reversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from orchestrator.market import Course, History
from orchestrator.market.reversion import course
from orchestrator.store import Tx
from orchestrator.store.market.prices import DAY_MS, Interval
from providers.offer import Offer

LOOKED_BACK_MS = 14 * DAY_MS
"""Long enough to see a week ahead once, short enough that prices were made by the same demand."""
SAMPLE = 64
"""Offers of a provider from which its course is learned, evenly over its list. Levels are read of all of them."""
EVERY_MS = 1_800_000
"""History is learned from up to the last full half hour, so that the decisions within one share the work."""


class PriceCourses(NamedTuple):
    """`courses` by provider; `levels`, by offer id, in nano-USD per hour."""

    courses: Mapping[str, Course]
    levels: Mapping[str, float]


def learned(tx: Tx, offers: Sequence[Offer], now_ms: int) -> PriceCourses:
    """What the known prices of these offers show."""
    spot = sorted((offer.provider, offer.id) for offer in offers if offer.spot)
    start_ms = now_ms - LOOKED_BACK_MS
    means = tx.mean_prices([Interval(name, start_ms, now_ms) for _, name in spot])
    levels = {name: float(mean) for (_, name), mean in zip(spot, means, strict=True) if mean}
    until_ms = now_ms - now_ms % EVERY_MS
    courses = {}
    for provider, named in groupby(spot, key=lambda each: each[0]):
        ids = [name for _, name in named]
        courses[provider] = _course(_histories(tx, ids[:: -(-len(ids) // SAMPLE)], until_ms), until_ms)
    return PriceCourses(courses, levels)


_Changes = tuple[tuple[int, int], ...]


def _histories(tx: Tx, ids: Sequence[str], until_ms: int) -> tuple[_Changes, ...]:
    start_ms = until_ms - LOOKED_BACK_MS
    changes = tx.price_changes_of([Interval(name, start_ms, until_ms) for name in ids])
    return tuple(tuple((max(at_ms, start_ms), price) for at_ms, price in each if price > 0) for each in changes if each)


@lru_cache(maxsize=32)
def _course(changes: tuple[_Changes, ...], until_ms: int) -> Course:
    histories = []
    for each in changes:
        if each:
            at_ms, price = zip(*each, strict=True)
            histories.append(History(np.array(at_ms, np.int64), np.array(price, np.float64), until_ms))
    return course(histories)
