"""Which offers a job may use at all; each that it may not has ONE binding reason, the first that applies.

Most reasons depend on the machine's shape or on its site alone: they are found once for each of those and looked up per
row. What does not depend on the job (no price, a stale one, no capacity) is found once for all jobs of a decision.

Must not know: what an offer would cost or how long it would take (objectives.py adds deadline and budget).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Listing, Market
from orchestrator.model import Alternative, JobSpec, Resources, Where
from orchestrator.policy.cost import Pool
from orchestrator.policy.demand import Rails
from providers.hardware import GPUS
from providers.offer import CapacityType

Bars = NDArray[np.int8]


class Bar(IntEnum):
    """What bars an offer, in the order of examination: the higher, the nearer to a fit."""

    GPU = 1
    GPU_COUNT = 2
    GPU_MEMORY = 3
    CPU = 4
    MEMORY = 5
    CLOUD = 6
    REGION = 7
    CAPACITY_TYPE = 8
    OTHER_MARKET = 9
    NO_PRICE = 10
    DOUBTED_PRICE = 11
    STALE_PRICE = 12
    NO_CAPACITY = 13
    GIVEN_UP = 14
    DEADLINE = 15
    BUDGET = 16


NONE = np.int8(0)
"""The value in a Bars column of an offer that nothing bars."""

_OVERLOOKED = (Bar.CAPACITY_TYPE, Bar.NO_CAPACITY, Bar.STALE_PRICE, Bar.GIVEN_UP)  # by the baseline


@dataclass(frozen=True, eq=False)
class Screened:
    """`bars` of every row, and the `pool` of rows that count: those that nothing bars (`usable` in it), and the
    on-demand offers that one would take without us (`instead` in it: the kinds of capacity that the job allows,
    back-off and the age of prices don't matter to those)."""

    market: Market
    bars: Bars
    current: int | None = None
    target: int | None = None
    told: dict[int, Alternative] = field(default_factory=dict)
    """What was told of rows that no job with this demand can use, whatever it would cost."""
    misses: dict[int | None, list[int]] = field(default_factory=dict)
    """The rows that came nearest to a fit, by how many were asked for (None: all)."""

    @cached_property
    def pool(self) -> Pool:
        counts = self.bars == NONE
        for bar in _OVERLOOKED:
            if self.counts[bar]:
                counts |= only(self.bars, bar) & self.market.priced & ~self.market.spot
        for row in (self.current, self.target):
            if row is not None:
                counts[row] = True
        return Pool(self.market, np.flatnonzero(counts), self.current, self.target)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        usable: NDArray[np.bool_] = self.bars[self.pool.of_all] == NONE
        return usable

    @cached_property
    def usable_at(self) -> NDArray[np.int64]:
        """Positions in the pool of what is usable."""
        return np.flatnonzero(self.usable)

    @cached_property
    def unbound(self) -> Bars:
        """The tiers of a job without promises: what is usable keeps them all."""
        return self.usable.astype(np.int8) * np.int8(2)

    @cached_property
    def instead(self) -> NDArray[np.bool_]:
        overlooked = self.usable.copy()
        for bar in _OVERLOOKED:
            if self.counts[bar]:
                overlooked |= only(self.bars[self.pool.of_all], bar)
        return overlooked & self.market.priced[self.pool.of_all] & ~self.pool.spot

    @cached_property
    def counts(self) -> dict[Bar, int]:
        """How many rows each Bar bars."""
        return {bar: int(np.count_nonzero(only(self.bars, bar))) for bar in Bar}


class Screen:
    """Screens one market for one or many jobs; equal demands are screened once."""

    def __init__(self, market: Market, rails: Rails) -> None:
        self._market = market
        self._now = np.zeros(len(market), np.int8)
        self._now[market.shut] = Bar.NO_CAPACITY
        self._now[market.older_than(rails.max_price_age_s)] = Bar.STALE_PRICE
        self._now[market.doubted] = Bar.DOUBTED_PRICE
        self._now[~market.priced] = Bar.NO_PRICE
        self._known: dict[object, Screened] = {}

    def __call__(
        self,
        spec: JobSpec,
        current: int | None,
        *,
        shortfalls: Sequence[int] = (),
        home: str | None = None,
        excluded: Collection[str] = (),
        target: int | None = None,
    ) -> Screened:
        """The bar of each offer, NONE where there is none.

        The offer that the job runs on (`current`), and the one to which a move that has begun brings it (`target`), are
        never barred by a price that is stale or not to be chosen, nor by missing capacity: it has the one and pays that
        price, and what the other has shows when it is rented.
        `shortfalls` are the bytes of GPU memory that each kind of the listing is known to lack, if anything is known of
        that. `home` is the provider where the job has been already; `excluded` are ids of offers that failed it lately.

        Simulated and real prices are never weighed against each other: a job stays in the market of its `home`, and a
        new one uses simulated offers only if it may use no real one.
        """
        listing = self._market.listing
        simulated = None if home is None or not listing.mixed else home in listing.simulated_providers
        key = (spec.resources, spec.where, spec.capacity, shortfalls, simulated)
        screened = self._known.get(key)
        if screened is None:
            screened = self._known[key] = Screened(self._market, self._bars(spec, shortfalls, simulated))
        had = [row for row in (current, target) if row is not None]
        failed = [row for row in map(self._market.row, excluded) if row is not None and row not in had]
        if not had and not failed:
            return screened
        bars = screened.bars.copy()
        for row in had:
            if bars[row] in (Bar.DOUBTED_PRICE, Bar.STALE_PRICE, Bar.NO_CAPACITY):
                bars[row] = NONE
        for row in failed:
            if bars[row] == NONE:
                bars[row] = Bar.GIVEN_UP
        return Screened(self._market, bars, current, target)

    def _bars(self, spec: JobSpec, shortfalls: Sequence[int], simulated: bool | None) -> Bars:
        listing = self._market.listing
        bars = shape_bars(listing, spec.resources, spec.where)[listing.shape]

        def bar(found: Bars | None) -> None:
            if found is not None:
                np.copyto(bars, found, where=bars == NONE)

        if any(shortfalls):
            lacking = np.array([Bar.GPU_MEMORY if short else NONE for short in shortfalls], np.int8)
            bar(lacking[listing.kind])
        bar(site_bars(listing, spec.where)[listing.site] if spec.where.regions else None)
        bar(_capacity_bars(listing, spec.capacity))
        if listing.mixed:
            sim = np.array([shape.simulated for shape in listing.shapes])[listing.shape]
            wanted = simulated if simulated is not None else not ((bars == NONE) & ~sim).any()
            bar(np.where(sim == wanted, NONE, np.int8(Bar.OTHER_MARKET)))
        bar(self._now)
        return bars


def only(bars: Bars, bar: Bar) -> NDArray[np.bool_]:
    """Where `bar` stands. (A plain comparison would widen the column to the enum's 64 bits.)"""
    there: NDArray[np.bool_] = bars == np.int8(bar)
    return there


def shape_bars(listing: Listing, wants: Resources, where: Where) -> Bars:
    """Bars that a machine's shape alone decides, by shape of the listing."""
    shapes = listing.shape_columns
    bars = np.zeros(len(listing.shapes), np.int8)

    def bar(code: Bar, mask: NDArray[np.bool_]) -> None:
        bars[mask & (bars == NONE)] = code

    if wants.gpus:
        codes = [listing.gpu_names.index(g.name) if g.name in listing.gpu_names else -2 for g in wants.gpus]
        bar(Bar.GPU, ~np.isin(shapes.gpu, codes))
        fits = np.zeros(len(bars), np.bool_)
        for code, request in zip(codes, wants.gpus, strict=True):
            fits |= (shapes.gpu == code) & (shapes.gpu_count == request.count)
        bar(Bar.GPU_COUNT, ~fits)
    if wants.gpu_memory_bytes is not None:
        least, most = wants.gpu_memory_bytes
        # The last entry answers for index -1: no GPU, no memory.
        memory = np.array([*(GPUS[name].memory_bytes for name in listing.gpu_names), 0])[shapes.gpu]
        bar(Bar.GPU_MEMORY, (memory < least) | (memory > (most if most is not None else memory)))
    if wants.cpu is not None:
        bar(Bar.CPU, shapes.vcpu < wants.cpu)
    if wants.memory_bytes is not None:
        bar(Bar.MEMORY, shapes.memory_bytes < wants.memory_bytes)
    if where.clouds:
        allowed = [matches(name, where.clouds) for name in listing.providers]
        bar(Bar.CLOUD, ~np.array(allowed, np.bool_)[shapes.provider])
    return bars


def site_bars(listing: Listing, where: Where) -> Bars:
    """Bars that a machine's site alone decides, by site of the listing."""
    allowed = {region: matches(region, where.regions) for region in {site.region for site in listing.sites}}
    return np.array([NONE if allowed[site.region] else Bar.REGION for site in listing.sites], np.int8)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of several shell-style patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _capacity_bars(listing: Listing, allowed: tuple[CapacityType, ...]) -> Bars | None:
    bars = np.array([Bar.CAPACITY_TYPE if kind not in allowed else NONE for kind in _CAPACITY], np.int8)
    return bars[listing.spot.view(np.int8)] if bars.any() else None


_CAPACITY = (CapacityType.ON_DEMAND, CapacityType.SPOT)  # by the value of `spot`
