"""Filter: finds the offers that a job may use. Each other offer has ONE rejection reason: the first that applies.

Most reasons depend only on the machine's shape or its site. They are computed once per shape or site, and kept with the
listing for jobs with equal requirements. Reasons that do not depend on the job (no price, a stale price, no capacity)
are computed once per decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Listing, Market, of_machines
from orchestrator.market.cached_property import cached_property
from orchestrator.model import Alternative, JobSpec, Resources, Where
from orchestrator.policy.demand import NO_RENT_LIMITS, MoveLimits, RentLimits
from orchestrator.policy.ranking.pool import Pool, Rows
from providers.hardware import GPUS
from providers.offer import CapacityType

RejectionReasons = NDArray[np.int8]

SMALL = 64  # a market with at most this many offers can be listed completely
MOST_AWAITED = 16  # at most this many offers without capacity are considered, those with the lowest prices
_MOST_KNOWN = 64  # a listing keeps the rejections for this many different requirements


class RejectionReason(IntEnum):
    """Why an offer is not considered, in the order of examination: a higher value is closer to a fit."""

    GPU = 1
    GPU_COUNT = 2
    GPU_MEMORY = 3
    CPU = 4
    MEMORY = 5
    CLOUD = 6
    REGION = 7
    CAPACITY_TYPE = 8
    OTHER_MARKET = 9
    QUOTA = 10
    TOO_FEW_MACHINES = 11
    NO_PRICE = 12
    DOUBTED_PRICE = 13
    STALE_PRICE = 14
    RENT_LIMIT = 15
    QUOTA_IN_USE = 16
    MACHINES_IN_USE = 17
    NO_CAPACITY = 18
    FAILED_LATELY = 19
    RESERVED = 20
    DEADLINE = 21
    BUDGET = 22


NONE = np.int8(0)
"""The value of an offer without a rejection reason."""

LAST_MISFIT = np.int8(RejectionReason.MEMORY)
"""An offer with this reason or an earlier one cannot run the job at all."""

OVER_QUOTA = (
    RejectionReason.QUOTA,
    RejectionReason.TOO_FEW_MACHINES,
    RejectionReason.QUOTA_IN_USE,
    RejectionReason.MACHINES_IN_USE,
)
"""Reasons caused by a quota of the account, or by the number of machines that the user owns."""

SHUT_FOR_A_WHILE = (
    RejectionReason.STALE_PRICE,
    RejectionReason.QUOTA_IN_USE,
    RejectionReason.MACHINES_IN_USE,
    RejectionReason.NO_CAPACITY,
    RejectionReason.FAILED_LATELY,
    RejectionReason.RESERVED,
)
"""Reasons that pass by themselves. Such an offer is expected to cost its last known price."""

_OVERLOOKED = (
    RejectionReason.CAPACITY_TYPE,
    RejectionReason.NO_CAPACITY,
    RejectionReason.STALE_PRICE,
    RejectionReason.FAILED_LATELY,
)  # the baseline ignores these reasons

_FAILED = np.int8(RejectionReason.FAILED_LATELY)
_OVERLOOKED_WHERE_IT_IS = (
    RejectionReason.QUOTA,
    RejectionReason.TOO_FEW_MACHINES,
    RejectionReason.DOUBTED_PRICE,
    RejectionReason.STALE_PRICE,
    RejectionReason.RENT_LIMIT,
    RejectionReason.QUOTA_IN_USE,
    RejectionReason.MACHINES_IN_USE,
    RejectionReason.NO_CAPACITY,
    RejectionReason.RESERVED,
)


@dataclass(frozen=True, eq=False)
class Filtered:
    """The result of a filter: the `rejection_reasons` of every row, and the `pool` of relevant rows.

    The pool has the rows without a rejection reason (`usable`), and the on-demand offers that a user would choose
    without Tradewind (`instead_at`). For the latter, allowed capacity types, back-off and price age do not matter.
    """

    market: Market
    rejection_reasons: RejectionReasons
    current: int | None = None
    target: int | None = None
    setup_s: float = 0.0
    reported: dict[int, Alternative] = field(default_factory=dict)
    """A cache of alternatives for rows that no job with these requirements can use."""
    misses: dict[int | None, list[int]] = field(default_factory=dict)
    """A cache of the rows closest to a fit, by how many were requested (None: all)."""
    counted: dict[RejectionReason, int] | None = None
    """`counts`, if known."""

    @cached_property
    def pool(self) -> Pool:
        """The relevant rows, in market order."""
        counts = self.rejection_reasons == NONE
        for rejection_reason in _OVERLOOKED:
            if self.counts[rejection_reason]:
                counts |= only(self.rejection_reasons, rejection_reason) & self.market.priced & ~self.market.spot
        for row in (self.current, self.target):
            if row is not None:
                counts[row] = True
        around = self.awaited if self.fitting is None else self.fitting
        return Pool(self.market, np.flatnonzero(counts), self.current, self.target, self.setup_s, around)

    @cached_property
    def fitting(self) -> Rows | None:
        """The rows that could run the job, even if it may not use them; None in a market that is not small."""
        return np.flatnonzero(fits(self.rejection_reasons)) if len(self.market) <= SMALL else None

    @cached_property
    def awaited(self) -> Rows:
        """The spot rows that only lack capacity now; at most MOST_AWAITED, those with the lowest prices."""
        if not self.counts[RejectionReason.NO_CAPACITY]:
            return np.zeros(0, np.int64)
        market = self.market
        shut = only(self.rejection_reasons, RejectionReason.NO_CAPACITY)
        rows = np.flatnonzero(shut & market.priced & market.spot)
        return rows[np.argsort(market.price[rows], kind="stable")[:MOST_AWAITED]]

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Over the pool: whether a row has no rejection reason."""
        usable: NDArray[np.bool_] = self.rejection_reasons[self.pool.of_all] == NONE
        return usable

    @cached_property
    def usable_at(self) -> NDArray[np.int64]:
        """The positions of usable rows in the pool."""
        return np.flatnonzero(self.usable)

    @cached_property
    def unbound(self) -> RejectionReasons:
        """The tiers of a job without deadline and budget: every usable row is safe."""
        return self.usable.astype(np.int8) * np.int8(2)

    @cached_property
    def instead_at(self) -> Rows:
        """The positions in the pool of the on-demand offers that a user would choose without Tradewind. If any has a
        fresh price, only those."""
        market, pool, reasons = self.market, self.pool, self.rejection_reasons[self.pool.of_all]
        overlooked = self.usable.copy()
        for rejection_reason in _OVERLOOKED:
            if self.counts[rejection_reason]:
                overlooked |= only(reasons, rejection_reason)
        positions = np.flatnonzero(overlooked & market.priced[pool.of_all] & ~pool.spot)
        fresh = positions[~only(reasons[positions], RejectionReason.STALE_PRICE)]
        return fresh if fresh.size else positions

    @cached_property
    def capacity_again_ms(self) -> int | None:
        """When the first back-off ends among the offers that lack only capacity (market time, ms); None if there are
        none."""
        if not self.counts[RejectionReason.NO_CAPACITY]:
            return None
        shut = only(self.rejection_reasons, RejectionReason.NO_CAPACITY)
        return int(self.market.backed_off_until[shut].min())

    @cached_property
    def counts(self) -> dict[RejectionReason, int]:
        """The number of rows that each reason rejects."""
        if self.counted is not None:
            return self.counted
        counted = np.bincount(self.rejection_reasons, minlength=1 + len(RejectionReason))
        return dict(zip(RejectionReason, counted[1:].tolist(), strict=True))


class Filter:
    """Filters one market for any number of jobs. Equal requirements are filtered once."""

    def __init__(self, market: Market, limits: MoveLimits) -> None:
        self.market = self._market = market
        self._now = np.zeros(len(market), np.int8)
        self._now[market.backed_off] = RejectionReason.NO_CAPACITY
        self._now[market.older_than(limits.max_price_age_s)] = RejectionReason.STALE_PRICE
        self._now[market.doubted] = RejectionReason.DOUBTED_PRICE
        self._now[~market.priced] = RejectionReason.NO_PRICE
        self._highest = int(market.price.max(initial=0))
        self._known: dict[object, Filtered] = {}
        self._reasons: dict[object, RejectionReasons] = {}

    def __call__(
        self,
        spec: JobSpec,
        current: int | None,
        *,
        shortfalls: Sequence[int] = (),
        home: str | None = None,
        excluded: Collection[str] = (),
        reserved: tuple[str, ...] = (),
        target: int | None = None,
        setup_s: float = 0.0,
        rent: RentLimits = NO_RENT_LIMITS,
    ) -> Filtered:
        """The rejection reason of each offer; NONE if there is none.

        - `current`, `target`: the rows where the job runs and to which it is moving. They are not rejected for a stale
          or doubted price, missing capacity, a quota, `rent`, `reserved` or `excluded`: the job already pays for the
          first, and renting shows the state of the second.
        - `shortfalls`: the bytes of GPU memory that each kind of the listing is known to lack; empty if unknown.
        - `home`: the provider where the job has already been.
        - `excluded`: ids of offers that recently failed the job.
        - `reserved`: ids of offers that are reserved for other jobs now.
        - `setup_s`: see Demand. It rejects nothing and is passed on to the pool.
        - `rent`: the most that the job may rent.

        Simulated and real prices are never compared: a job stays in the market of its `home`, and a new job uses
        simulated offers only if no real one fits.
        """
        listing = self._market.listing
        simulated = None if home is None or not listing.mixed else home in listing.simulated_providers
        key = (spec.resources, spec.where, spec.capacity, shortfalls, simulated, reserved, rent)
        filtered = self._known.get((key, setup_s))
        if filtered is None:
            reasons = self._reasons.get(key)
            if reasons is None:
                reasons = self._reasons[key] = self._rejections(spec, shortfalls, simulated, reserved, rent)
            filtered = self._known[key, setup_s] = Filtered(self._market, reasons, setup_s=setup_s)
        had = [row for row in (current, target) if row is not None]
        failed = [row for row in map(self._market.row, excluded) if row is not None and row not in had]
        if not had and not failed:
            return filtered
        rejection_reasons, counts = filtered.rejection_reasons.copy(), dict(filtered.counts)
        changed = [(row, NONE) for row in had if rejection_reasons.item(row) in _OVERLOOKED_WHERE_IT_IS]
        changed += [(row, _FAILED) for row in failed if rejection_reasons[row] == NONE]
        for row, now in changed:
            for rejection_reason, more in ((rejection_reasons[row], -1), (now, 1)):
                if rejection_reason != NONE:
                    counts[RejectionReason(int(rejection_reason))] += more
            rejection_reasons[row] = now
        return Filtered(self._market, rejection_reasons, current, target, setup_s, counted=counts)

    def _rejections(
        self,
        spec: JobSpec,
        shortfalls: Sequence[int],
        simulated: bool | None,
        reserved: tuple[str, ...],
        rent: RentLimits,
    ) -> RejectionReasons:
        listing = self._market.listing
        key = (spec.resources, spec.where, spec.capacity, shortfalls, simulated)
        fixed = listing.known.get(key)
        if fixed is None:
            fixed = _fixed_rejections(listing, spec, shortfalls, simulated)
            fixed.setflags(write=False)
            if len(listing.known) >= _MOST_KNOWN:
                listing.known.clear()
            listing.known[key] = fixed
        found = np.where(fixed == NONE, self._now_for(spec.resources.nodes), fixed)
        if reserved:
            rows = [row for row in map(self._market.row, reserved) if row is not None]
            found[rows] = np.where(found[rows] == NONE, np.int8(RejectionReason.RESERVED), found[rows])
        if not rent.allow(spec.resources.nodes, self._highest):
            limit, machines = np.int8(RejectionReason.RENT_LIMIT), spec.resources.nodes
            # with too many machines, no other price would help
            over, after = self._market.price > rent.nano_usd_per_hour, limit
            if not rent.allow(machines, 0):
                over, after = np.ones(len(found), np.bool_), np.int8(RejectionReason.OTHER_MARKET)
            found[over & ((found == NONE) | (found > after))] = limit
        return found

    def _now_for(self, machines: int) -> RejectionReasons:
        """The reasons that depend only on how many machines the job needs."""
        if not self._market.rooms:
            return self._now
        (left, most), owned = self._market.room, self._market.owned
        now = self._now.copy()
        full = (left < machines) & ((now == NONE) | only(now, RejectionReason.NO_CAPACITY))
        now[full & ~owned], now[full & owned] = RejectionReason.QUOTA_IN_USE, RejectionReason.MACHINES_IN_USE
        never = most < machines
        now[never & ~owned], now[never & owned] = RejectionReason.QUOTA, RejectionReason.TOO_FEW_MACHINES
        return now


class Filters:
    """The filters of one market for jobs on any number of machines."""

    def __init__(self, market: Market, limits: MoveLimits) -> None:
        self._market, self._limits = market, limits
        self._made: dict[int, Filter] = {}

    def of(self, nodes: int) -> Filter:
        """The filter for jobs on `nodes` machines: always the same one."""
        if nodes not in self._made:
            self._made[nodes] = Filter(of_machines(self._market, nodes), self._limits)
        return self._made[nodes]


def _fixed_rejections(
    listing: Listing, spec: JobSpec, shortfalls: Sequence[int], simulated: bool | None
) -> RejectionReasons:
    """The reasons that depend neither on prices nor on capacity."""
    rejection_reasons = shape_rejections(listing, spec.resources, spec.where)[listing.shape]

    def rejection_reason(found: RejectionReasons | None) -> None:
        if found is not None:
            np.copyto(rejection_reasons, found, where=rejection_reasons == NONE)

    if any(shortfalls):
        lacking = np.array([RejectionReason.GPU_MEMORY if short else NONE for short in shortfalls], np.int8)
        rejection_reason(lacking[listing.kind])
    rejection_reason(site_rejections(listing, spec.where)[listing.site] if spec.where.regions else None)
    rejection_reason(_capacity_rejections(listing, spec.capacity))
    if listing.mixed:
        sim = np.array([shape.simulated for shape in listing.shapes])[listing.shape]
        wanted = simulated if simulated is not None else not ((rejection_reasons == NONE) & ~sim).any()
        rejection_reason(np.where(sim == wanted, NONE, np.int8(RejectionReason.OTHER_MARKET)))
    return rejection_reasons


def only(rejection_reasons: RejectionReasons, rejection_reason: RejectionReason) -> NDArray[np.bool_]:
    """Where a column has this reason. (Comparing with the enum itself would widen the column to 64 bits.)"""
    there: NDArray[np.bool_] = rejection_reasons == np.int8(rejection_reason)
    return there


def fits(rejection_reasons: RejectionReasons) -> NDArray[np.bool_]:
    """Where an offer can run the job, even if the job may not use it. Elsewhere, a cost has no meaning."""
    found: NDArray[np.bool_] = (rejection_reasons == NONE) | (rejection_reasons > LAST_MISFIT)
    return found


def shape_rejections(listing: Listing, wants: Resources, where: Where) -> RejectionReasons:
    """Rejection reasons that depend only on a machine's shape, over the shapes of the listing."""
    shapes = listing.shape_columns
    rejection_reasons = np.zeros(len(listing.shapes), np.int8)

    def rejection_reason(code: RejectionReason, mask: NDArray[np.bool_]) -> None:
        rejection_reasons[mask & (rejection_reasons == NONE)] = code

    if wants.gpus:
        codes = [listing.gpu_names.index(g.name) if g.name in listing.gpu_names else -2 for g in wants.gpus]
        named, fits = np.zeros((2, len(rejection_reasons)), np.bool_)
        for code, request in zip(codes, wants.gpus, strict=True):
            found = shapes.gpu == code
            named |= found
            fits |= found & (shapes.gpu_count == request.count)
        rejection_reason(RejectionReason.GPU, ~named)
        rejection_reason(RejectionReason.GPU_COUNT, ~fits)
    if wants.gpu_memory_bytes is not None:
        least, most = wants.gpu_memory_bytes
        # The last entry is for index -1: no GPU, no memory.
        memory = np.array([*(GPUS[name].memory_bytes for name in listing.gpu_names), 0])[shapes.gpu]
        rejection_reason(
            RejectionReason.GPU_MEMORY, (memory < least) | (memory > (most if most is not None else memory))
        )
    if wants.cpu is not None:
        rejection_reason(RejectionReason.CPU, shapes.vcpu < wants.cpu)
    if wants.memory_bytes is not None:
        rejection_reason(RejectionReason.MEMORY, shapes.memory_bytes < wants.memory_bytes)
    if where.clouds:
        allowed = [matches(name, where.clouds) for name in listing.providers]
        rejection_reason(RejectionReason.CLOUD, ~np.array(allowed, np.bool_)[shapes.provider])
    return rejection_reasons


def site_rejections(listing: Listing, where: Where) -> RejectionReasons:
    """Rejection reasons that depend only on a machine's site, over the sites of the listing."""
    allowed = {region: matches(region, where.regions) for region in {site.region for site in listing.sites}}
    return np.array([NONE if allowed[site.region] else RejectionReason.REGION for site in listing.sites], np.int8)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of several shell-style patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _capacity_rejections(listing: Listing, allowed: tuple[CapacityType, ...]) -> RejectionReasons | None:
    rejection_reasons = np.array(
        [RejectionReason.CAPACITY_TYPE if kind not in allowed else NONE for kind in _CAPACITY], np.int8
    )
    return rejection_reasons[listing.spot.view(np.int8)] if rejection_reasons.any() else None


_CAPACITY = (CapacityType.ON_DEMAND, CapacityType.SPOT)  # by the value of `spot`
