"""Price courses: the recent behaviour of the spot prices of each enabled provider, read from the store and fitted by
orchestrator.market.reversion.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Course, History, Listing
from orchestrator.market.reversion import course
from orchestrator.store import Tx
from orchestrator.store.market.prices import DAY_MS, Interval

LOOKED_BACK_MS = 14 * DAY_MS
"""Long enough to contain one full week ahead, short enough for demand to stay similar."""
SAMPLE = 64
"""How many of a provider's offers, spread evenly over its list, are used to fit its course. Levels use all offers."""
EVERY_MS = 1_800_000
"""History is used up to the last full half hour, so that all decisions within one share the result."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PriceCourses:
    """`courses` by provider; `levels` by row of the listing, in nano-USD per hour (-1: not known). Learned from prices
    up to `until_ms`; for an offer whose first price is newer, the level is that price. `sampled` are the offers of each
    provider from which its course was learned."""

    until_ms: int
    courses: Mapping[str, Course]
    levels: Floats
    sampled: Mapping[str, frozenset[str]]


def learned(
    tx: Tx, listing: Listing, now_ms: int, *, before: PriceCourses | None = None, changed: Collection[str] = ()
) -> PriceCourses:
    """The courses and levels of these offers' known prices in the last LOOKED_BACK_MS. `before` is the earlier result
    without the newest prices of the `changed` offers: within the same half hour only these are read again."""
    until_ms = now_ms - now_ms % EVERY_MS
    if before is not None and before.until_ms == until_ms:
        rows = [row for name in changed if (row := listing.row(name)) is not None and listing.spot[row]]
        levels, courses, sampled = before.levels.copy(), {**before.courses}, before.sampled
    else:
        rows = np.flatnonzero(listing.spot).tolist()
        levels, courses, sampled = np.full(len(listing), -1.0), {}, _sampled(listing)
    levels[rows] = _levels(tx, [listing.ids[row] for row in rows], until_ms, now_ms)
    for provider, ids in sampled.items():
        if provider not in courses or not ids.isdisjoint(changed):
            courses[provider] = _course(_histories(tx, sorted(ids), until_ms), until_ms)
    return PriceCourses(until_ms, courses, levels, sampled)


def _sampled(listing: Listing) -> dict[str, frozenset[str]]:
    """The offers of each provider from which its course is learned, by provider."""
    spot = np.flatnonzero(listing.spot)
    provider = listing.site_provider[listing.site[spot]]
    found = {}
    for number, name in enumerate(listing.providers):
        rows = spot[provider == number]
        if rows.size:
            found[name] = frozenset(listing.ids[row] for row in rows[:: -(-rows.size // SAMPLE)].tolist())
    return found


def _levels(tx: Tx, ids: Sequence[str], until_ms: int, now_ms: int) -> list[float]:
    """The mean price of each offer up to `until_ms`; else its first price after that."""
    means = tx.mean_prices([Interval(name, until_ms - LOOKED_BACK_MS, until_ms) for name in ids])
    young = [name for name, mean in zip(ids, means, strict=True) if mean is None]
    first = [(name, at_ms) for name, at_ms in tx.first_prices_ms(young).items() if at_ms <= now_ms]
    began = dict(zip((name for name, _ in first), tx.prices_at(first), strict=True))
    known = [began.get(name) if mean is None else mean for name, mean in zip(ids, means, strict=True)]
    return [float(each) if each else -1.0 for each in known]


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
