"""Capacity: when each spot pool can be used; synthetic, because no recorded price history contains it.

A pool (one instance type in one zone) alternates between spells of log-normal length. Its mean up time is 8 hours times
a factor of the pool (log-normal, sigma 0.6), its mean down time 1 to 3 hours. In addition each region has outages, on
average every 5 days and for an hour; each takes a pool of the region with a probability of 70 %. When a pool goes down,
all its machines are lost. A pool's spells depend only on the seed and its name, not on the other pools.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.arena.replay.record import Record

HOUR_MS = 3_600_000
MEAN_UP_H, UP_SPREAD, SPELL_SPREAD = 8.0, 0.6, 1.0
MEAN_DOWN_H = (1.0, 3.0)
OUTAGE_EVERY_H, OUTAGE_H, OUTAGE_SHARE = 120.0, 1.0, 0.7

Spell = tuple[int, int]
"""From (inclusive) and to (exclusive), in ms of market time."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The spells without capacity of one offer, ascending and disjoint."""

    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, down: Iterable[Spell]) -> Pool:
        """A pool that is down in these spells, which may overlap and touch."""
        merged: list[list[int]] = []
        for begin, end in sorted(down):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return cls(tuple(each[0] for each in merged), tuple(each[1] for each in merged))

    def up(self, at_ms: int) -> bool:
        """Whether a launch is granted."""
        index = bisect_right(self.begins, at_ms) - 1
        return index < 0 or at_ms >= self.ends[index]

    def lost_ms(self, at_ms: int) -> int | None:
        """When a machine that is launched now will be lost; None if never."""
        index = bisect_right(self.begins, at_ms)
        return self.begins[index] if index < len(self.begins) else None


Capacity = Sequence[Pool]
"""The pool of each row of a record's listing; on-demand offers always have capacity."""


def synthetic(record: Record, seed: int, until_ms: int) -> tuple[Pool, ...]:
    """Capacity from a week before the record's start until a time."""
    from_ms = record.start_ms - 7 * 24 * HOUR_MS
    listing = record.listing
    outages = {region: _outages(f"{seed}/{region}", from_ms, until_ms) for region in set(listing.regions)}
    pools = []
    for row, offer_id in enumerate(listing.ids):
        if not listing.spot[row]:
            pools.append(Pool())
            continue
        chance = _numbers(f"{seed}/{offer_id}")
        mean_up = MEAN_UP_H * math.exp(chance.normal(0.0, UP_SPREAD))
        down = list(_spells(chance, mean_up, chance.uniform(*MEAN_DOWN_H), from_ms, until_ms))
        struck = outages[listing.regions[int(listing.site[row])]]
        down += [spell for spell in struck if chance.random() < OUTAGE_SHARE]
        pools.append(Pool.of(down))
    return tuple(pools)


def _numbers(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _spells(
    chance: np.random.Generator, mean_up_h: float, mean_down_h: float, from_ms: int, until_ms: int
) -> Iterable[Spell]:
    at_ms = from_ms - round(mean_up_h * HOUR_MS * chance.random())
    while at_ms < until_ms:
        at_ms += _length_ms(chance, mean_up_h)
        end_ms = at_ms + _length_ms(chance, mean_down_h)
        yield at_ms, end_ms
        at_ms = end_ms


def _length_ms(chance: np.random.Generator, mean_h: float) -> int:
    """A log-normal length with this mean, of at least a minute."""
    hours = mean_h * math.exp(chance.normal(-(SPELL_SPREAD**2) / 2, SPELL_SPREAD))
    return max(round(hours * 60), 1) * 60_000


def _outages(name: str, from_ms: int, until_ms: int) -> list[Spell]:
    chance, found = _numbers(name), []
    at_ms = float(from_ms)
    while (at_ms := at_ms + chance.exponential(OUTAGE_EVERY_H) * HOUR_MS) < until_ms:
        begin_ms = round(at_ms / 60_000) * 60_000
        found.append((begin_ms, begin_ms + max(round(chance.exponential(OUTAGE_H) * 60), 5) * 60_000))
    return found
