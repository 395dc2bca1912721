"""Polls: when each region last answered a price poll. A price that a poll did not report again has not changed, so it
is as recent as that poll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.listing import Listing

Answered = tuple[str, str, bool | None]
"""The coverage of a poll: a provider, a region ('': all), spot or on-demand (None: both)."""
Polled = tuple[Answered, int]
"""A poll's coverage, and the market time (ms) up to which it is complete."""


def latest(known: Mapping[Answered, int], polls: Iterable[Polled], at_ms: int) -> Mapping[Answered, int]:
    """The time (ms) of the last answer for each coverage, without polls after `at_ms`. Returns `known` itself if
    nothing is new."""
    new = [(answered, polled_ms) for answered, polled_ms in polls if polled_ms <= at_ms]
    if not new:
        return known
    found = dict(known)
    for answered, polled_ms in new:
        found[answered] = max(found.get(answered, polled_ms), polled_ms)
    return MappingProxyType(found)


def answered_by_site(listing: Listing, polled: Mapping[Answered, int]) -> NDArray[np.int64]:
    """When each site's region last answered (ms; -1: never), of shape (sites, 2): first on-demand, then spot."""
    newest: dict[tuple[str, str], list[int]] = defaultdict(lambda: [-1, -1])
    for (name, region, of_spot), at_ms in polled.items():
        known = newest[name, region]
        for spot in (False, True) if of_spot is None else (of_spot,):
            known[spot] = max(known[spot], at_ms)
    regions = listing.regions
    own, everywhere = ([newest[key] for key in keys] for keys in (regions, [(name, "") for name, _ in regions]))
    return np.maximum(np.array(own, np.int64), np.array(everywhere, np.int64)).reshape(-1, 2)
