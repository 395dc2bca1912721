"""Market: offers, prices, capacity and hazard as known at one time, in columns.

A row is an offer (sorted by id). `Offer` objects are created on demand, because a hundred thousand of them cannot be
ranked in milliseconds. `Market.as_of(t)` builds a Market and drops everything observed after t. `learn(t)` adds what
was learned since to an older Market and shares the columns that did not change. Both give the same market, and neither
can show the future.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.ageing import FRESH_S, drift
from orchestrator.market.availability import (
    ASSUMED,
    AvailabilityPoint,
    HazardPrior,
    hazard_per_hour,
    summarise,
)
from orchestrator.market.cached_property import cached_property
from orchestrator.market.cells import Cells
from orchestrator.market.digest import BLOCK, block_hashes, declared
from orchestrator.market.listing import Listing
from orchestrator.market.outages import mean_by_group_h
from orchestrator.market.polls import Answered, Polled, answered_by_site, latest
from orchestrator.market.price_columns import PriceColumns
from orchestrator.market.price_forecast import PriceForecast
from orchestrator.market.prior_hazard import prior_hazard
from orchestrator.market.quotas import Rooms
from orchestrator.market.reversion import UNKNOWN, Course
from orchestrator.market.start_times import Quantile, coded_starts, site_starts, start_table
from orchestrator.market.transfer import TYPICAL, Tariff, rate_between
from orchestrator.model import Estimate
from providers.billing.charges import Location
from providers.offer import Offer
from providers.price import PricePoint

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SEAL = object()
_FOLLOWS_FROM: Mapping[str, set[str]] = {
    "_start_tables": {"site_starts", "starts"},
    "_answered_by_site": {"polled"},
    "doubted": {"doubts"},
    "room": {"rooms"},
    "owned": {"rooms"},
    "priced": {"price"},
    "outage_by_provider_h": {"returns", "away_ms"},
    "_declared": {"startup", "starts", "priors", "doubts", "rooms", "courses", "level"},
}
"""For each value that a Market computes on first use: the fields that it depends on, besides the listing."""
_LEARNED = ("backed_off_by_loss", "losses", "exposure_ms", "returns", "away_ms", "away_since_ms")


@dataclass(frozen=True, eq=False, kw_only=True)
class Market:
    """Everything known at `at` (epoch ms of market time). All columns are read-only and as long as `listing`.

    `price` is nano-USD per hour, -1 if unknown; `effective_at` is when it took effect, `observed_at` when it became
    known. A price counts as fresh for `fresh_s` seconds after it was last confirmed. `backed_off_until` is the end of
    the back-off after missing capacity at `backed_off_at` (both -1: none). `hazard` is in losses per hour. `returns`,
    `away_ms` and `away_since_ms` say how outages ended (CapacityHistory).

    `doubts` says, by row, why an offer must not be chosen although its price is correct. `rooms` says how many machines
    quotas leave, for the rows that they limit. `polled` is the time of the last answer by provider, region ('':
    everywhere) and spot (None: both), `startup` the usual seconds from a launch to a ready trainer by provider, and
    `tariff` the price of moving bytes.
    """

    seal: InitVar[object]
    at: int
    listing: Listing
    price: Ints
    effective_at: Ints
    observed_at: Ints
    backed_off_at: Ints
    backed_off_until: Ints
    backed_off_by_loss: Bools
    losses: Ints
    exposure_ms: Ints
    returns: Ints
    away_ms: Ints
    away_since_ms: Ints
    hazard: Floats
    doubts: Mapping[int, str]
    rooms: Rooms
    fresh_s: Floats | float
    polled: Mapping[Answered, int]
    startup: Mapping[str, float | Estimate]
    starts: Mapping[tuple[int, int], Estimate]  # by site and kind, if any was observed
    courses: Mapping[str, Course]
    level: Floats  # usual price, nano-USD per hour; -1: unknown
    priors: Mapping[tuple[str, str, str], HazardPrior]
    site_starts: Mapping[Quantile, Floats]  # `startup` by site of the listing
    tariff: Tariff
    known_rates: dict[tuple[Location, bool], Floats]  # rates already looked up in the tariff
    announced: tuple[PricePoint, ...]  # observed prices that are not yet in effect
    seen: Mapping[int, tuple[AvailabilityPoint, ...]]  # by row, if anything was observed
    alive: frozenset[int]  # rows with running machines, whose exposure grows
    older_cells: Cells | None  # those of an older market, updated; None: compute them
    hashed: (
        tuple[tuple[bytes, ...], frozenset[int]] | None
    )  # from an older market: its blocks, and the blocks that differ here

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Market is only built by Market.as_of and Market.learn")
        for column in vars(self).values():
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    @classmethod
    def as_of(
        cls,
        at_ms: int,
        *,
        offers: Iterable[Offer] | Listing,
        prices: Iterable[PricePoint] | PriceColumns,
        availability: Iterable[AvailabilityPoint] = (),
        polls: Iterable[Polled] = (),
        startup_s: Mapping[str, float | Estimate] | None = None,
        starts: Mapping[tuple[Location, tuple[str | None, int]], Estimate] | None = None,
        courses: Mapping[str, Course] | None = None,
        levels: Mapping[str, float] | Floats | None = None,
        priors: Mapping[tuple[str, str, str], HazardPrior] | None = None,
        hazard: Floats | None = None,
        tariff: Tariff = TYPICAL,
        doubts: Mapping[str, str] | None = None,
        rooms: Rooms | None = None,
        fresh_s: Mapping[str, float] | None = None,
    ) -> Market:
        """The market as it was known at `at_ms`. Later observations are ignored, and so are announced prices not yet in
        effect.

        `polls` are successful price polls: an unchanged price is as fresh as the last poll of its region. `startup_s`
        is the usual time (market seconds) from a launch to a ready trainer by provider, `starts` the same by location
        and kind of hardware. `courses` say by provider how spot prices behave around the `levels` of offers (nano-USD
        per hour). `priors` are published interruption rates by (provider, region, instance type), and `hazard` is the
        result of `prior_hazard` for them. `doubts` says, by offer id, why an offer must not be chosen; `rooms` are by
        row of the listing. `fresh_s` is for how many seconds a price counts as fresh, by offer id (default FRESH_S).
        """
        listing = offers if isinstance(offers, Listing) else Listing.of(offers)
        size = len(listing)
        columns, points = (prices, ()) if isinstance(prices, PriceColumns) else (PriceColumns.unknown(size), prices)
        if not isinstance(levels, np.ndarray):
            levels = np.array([(levels or {}).get(name, -1.0) for name in listing.ids], np.float64)
        market = cls(
            seal=_SEAL,
            at=at_ms,
            listing=listing,
            **columns._asdict(),
            backed_off_at=np.full(size, -1, np.int64),
            backed_off_until=np.full(size, -1, np.int64),
            backed_off_by_loss=np.zeros(size, np.bool_),
            losses=np.zeros(size, np.int64),
            exposure_ms=np.zeros(size, np.int64),
            returns=np.zeros(size, np.int64),
            away_ms=np.zeros(size, np.int64),
            away_since_ms=np.full(size, -1, np.int64),
            hazard=prior_hazard(listing, priors or {}) if hazard is None else hazard,
            doubts=MappingProxyType(
                {row: why for name, why in (doubts or {}).items() if (row := listing.row(name)) is not None}
            ),
            rooms=MappingProxyType(dict(rooms or {})),
            fresh_s=FRESH_S
            if fresh_s is None
            else np.array([fresh_s.get(name, FRESH_S) for name in listing.ids], np.float64),
            polled=MappingProxyType({}),
            startup=MappingProxyType(dict(startup_s or {})),
            priors=priors or {},
            starts=MappingProxyType(coded_starts(listing, starts or {})),
            courses=MappingProxyType(dict(courses or {})),
            level=levels,
            site_starts=site_starts(listing, startup_s or {}),
            tariff=tariff,
            known_rates={},
            announced=(),
            seen=MappingProxyType({}),
            alive=frozenset(),
            older_cells=None,
            hashed=None,
        )
        return market.learn(at_ms, prices=points, availability=availability, polls=polls)

    def learn(
        self,
        at_ms: int,
        *,
        prices: Iterable[PricePoint] = (),
        availability: Iterable[AvailabilityPoint] = (),
        polls: Iterable[Polled] = (),
    ) -> Market:
        """The market as known at `at_ms`, with what was learned since this one.

        Equals `as_of` with all points of both: nothing observed after `at_ms` counts, announced prices take effect, and
        back-offs and the hours of running machines continue. Raises ValueError if `at_ms` is before this market.
        """
        if at_ms < self.at:
            raise ValueError(f"a market at {self.at} cannot go back to {at_ms}")
        changes: dict[str, Any] = {"polled": latest(self.polled, polls, at_ms)}
        touched = self._learn_prices(at_ms, prices, changes) | self._learn_availability(at_ms, availability, changes)
        base, dirty = self._hash_base
        changes["older_cells"] = self._cells_with(changes.get("hazard"))
        changes["hashed"] = None if base is None else (base, dirty | {row // BLOCK for row in touched})
        return self.with_fields(at=at_ms, **changes)

    def with_fields(self, **changes: Any) -> Market:
        """A copy with other values of some fields and the same listing. Values that do not depend on a changed field
        are kept. (dataclasses.replace would process every column again.)"""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {name for name, value in changes.items() if value is not fields[name]}
        other, known = Market(**{**fields, **changes}, seal=_SEAL), vars(self)
        for name, sources in _FOLLOWS_FROM.items():
            if name in known and not sources & changed:
                vars(other)[name] = known[name]
        return other

    def _learn_prices(self, at_ms: int, prices: Iterable[PricePoint], changes: dict[str, Any]) -> set[int]:
        announced: list[PricePoint] = []
        in_force: dict[int, PricePoint] = {}
        row_of = self.listing.row
        for point in (*self.announced, *prices):
            row = row_of(point.offer_id)
            if row is None or point.observed_at_ms > at_ms:
                continue
            if point.effective_at_ms > at_ms:
                announced.append(point)
                continue
            known = in_force.get(row)
            if known is None:
                if _recency(point) > self._recency_of(row):
                    in_force[row] = point
            elif _recency(point) > _recency(known):
                in_force[row] = point
        changes["announced"] = tuple(announced)
        if in_force:
            rows = np.fromiter(in_force, np.int64, len(in_force))
            for name, field in (
                ("price", "nano_usd_per_hour"),
                ("effective_at", "effective_at_ms"),
                ("observed_at", "observed_at_ms"),
            ):
                column = getattr(self, name).copy()
                column[rows] = [getattr(point, field) for point in in_force.values()]
                changes[name] = column
        return set(in_force)

    def _recency_of(self, row: int) -> tuple[int, int, int]:
        if self.price[row] < 0:
            return (-(2**63), 0, 0)
        return int(self.effective_at[row]), int(self.observed_at[row]), int(self.price[row])

    def _learn_availability(
        self, at_ms: int, availability: Iterable[AvailabilityPoint], changes: dict[str, Any]
    ) -> set[int]:
        fresh: dict[int, list[AvailabilityPoint]] = defaultdict(list)
        for point in availability:
            row = self.listing.row(point.offer_id)
            if row is not None and point.at_ms <= at_ms:
                fresh[row].append(point)
        if not fresh and not self.alive:
            return set()
        seen = {**self.seen, **{row: (*self.seen.get(row, ()), *points) for row, points in fresh.items()}}
        columns = (*_LEARNED, "backed_off_at", "backed_off_until", "hazard")
        learned = {name: getattr(self, name).copy() for name in columns}
        alive = set()
        for row in {*fresh, *self.alive}:
            spot = bool(self.listing.spot[row])
            now = summarise(seen[row], at_ms, spot=spot)
            if now.alive:
                alive.add(row)
            learned["backed_off_at"][row] = now.backed_off_at_ms
            learned["backed_off_until"][row] = now.backed_off_until_ms
            for name in _LEARNED:
                learned[name][row] = getattr(now, name)
            learned["hazard"][row] = hazard_per_hour(now, spot=spot, prior=self._prior(row))
        changes.update(learned, seen=MappingProxyType(seen), alive=frozenset(alive))
        return set(fresh)

    def _prior(self, row: int) -> HazardPrior:
        site, shape = self.listing.sites[self.listing.site[row]], self.listing.shapes[self.listing.shape[row]]
        return self.priors.get((site.provider, site.region, shape.instance_type), ASSUMED)

    def __len__(self) -> int:
        return len(self.listing.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        """The offers' ids, by row."""
        return self.listing.ids

    @property
    def spot(self) -> Bools:
        """Whether each row is a spot offer."""
        return self.listing.spot

    def row(self, offer_id: str) -> int | None:
        """The row of an offer; None if it is not listed."""
        return self.listing.row(offer_id)

    def gpu(self, row: int) -> str | None:
        """The canonical GPU name of a row; None without a GPU."""
        return self.listing.shapes[int(self.listing.shape[row])].gpu

    def place(self, row: int) -> Location:
        """The location of the row's machines, for transfer costs."""
        site = self.listing.sites[self.listing.site[row]]
        return tuple(site)

    def offer(self, row: int) -> Offer:
        """The row as an Offer."""
        return self.listing.offer(row)

    def rates_from(self, place: Location) -> Floats:
        """nano-USD per GB from a location to each site of the listing."""
        return self._rates(place, outward=True)

    def rates_to(self, place: Location) -> Floats:
        """nano-USD per GB from each site of the listing to a location."""
        return self._rates(place, outward=False)

    def _rates(self, place: Location, *, outward: bool) -> Floats:
        key = (place, outward)
        if key not in self.known_rates:
            ways = ((place, each) if outward else (each, place) for each in self.listing.sites)
            self.known_rates[key] = np.array([rate_between(self.tariff, *way) for way in ways], np.float64)
        return self.known_rates[key]

    @property
    def startup_s(self) -> Floats:
        """Market seconds from a launch to a ready trainer, by row."""
        return self.start_s(self.listing.site, self.listing.kind)

    def start_s(self, site: Ints, kind: Ints, quantile: Quantile = "value") -> Floats:
        """Market seconds from a launch to a ready trainer, for columns of sites and kinds of hardware: the expected
        ones, or their 5th ("low") or 95th ("high") percentile."""
        if quantile not in self._start_tables:
            self._start_tables[quantile] = start_table(self.listing, self.site_starts, self.starts, quantile)
        return self._start_tables[quantile][site, kind]

    @cached_property
    def _start_tables(self) -> dict[Quantile, Floats]:
        """A cache: the table of `start_s` by site and kind, for each quantile asked for so far."""
        return {}

    def confirmed_at(self, rows: Ints | slice = slice(None)) -> Ints:
        """When each price was last confirmed, by an observation or a later poll of its region (ms; -1: no price)."""
        confirmed = self.observed_at[rows]
        if self.polled:
            answered = self._answered_by_site
            confirmed = np.maximum(
                confirmed, answered[self.listing.site[rows], self.listing.spot[rows].astype(np.int64)]
            )
        return np.where(self.price[rows] >= 0, confirmed, -1)

    def price_age_s(self, rows: Ints | slice = slice(None)) -> Floats:
        """Seconds since each price was last confirmed (0 if none is known)."""
        return np.where(self.price[rows] >= 0, (self.at - self.confirmed_at(rows)) / 1000, 0.0)

    def older_than(self, age_s: float) -> Bools:
        """Rows whose price was last confirmed more than `age_s` seconds ago."""
        limit = math.ceil(max(self.at - age_s * 1000, -1))  # an integer: another type would widen the column
        old = self.observed_at < limit
        if old.any():
            old &= self.priced
            answered = self._answered_by_site >= limit
            if answered.all():
                return np.zeros_like(old)
            if answered.any():
                old &= ~answered[self.listing.site, self.listing.spot.astype(np.int64)]
        return old

    @cached_property
    def _answered_by_site(self) -> Ints:
        """When each site's region last answered (ms; -1: never), of shape (sites, 2): first on-demand, then spot."""
        return answered_by_site(self.listing, self.polled)

    @cached_property
    def drift(self) -> Floats | None:
        """One standard deviation of the logarithm of each price, due to its age (market.ageing), by row. None if every
        price is fresh."""
        if not len(self) or not self.older_than(float(np.min(self.fresh_s))).any():
            return None
        return drift(self.price_age_s(), self.fresh_s, self.spot)

    def ahead(self, rows: Ints | slice) -> PriceForecast:
        """The price forecast of some rows."""
        provider = self.listing.site_provider[self.listing.site[rows]]
        courses = [self.courses.get(name, UNKNOWN) for name in self.listing.providers]
        return PriceForecast(self.price[rows], self.level[rows], self.spot[rows], provider, courses)

    @cached_property
    def doubted(self) -> Bools:
        """Rows that must not be chosen, although their price is known."""
        doubted = np.zeros(len(self), np.bool_)
        doubted[list(self.doubts)] = True
        return doubted

    @cached_property
    def room(self) -> Ints:
        """How many machines of each row may be rented, of shape (2, rows): first now, then at most."""
        room = np.full((2, len(self)), np.iinfo(np.int64).max, np.int64)
        for row, of_row in self.rooms.items():
            room[:, row] = of_row[0].left, min(each.most for each in of_row)
        return room

    @cached_property
    def owned(self) -> Bools:
        """Rows whose machines the user owns: their number is the limit, not a quota of an account."""
        owned = np.zeros(len(self), np.bool_)
        owned[[row for row, of_row in self.rooms.items() if of_row[0].quota.owned]] = True
        return owned

    @cached_property
    def priced(self) -> Bools:
        """Whether each row's price is known."""
        return self.price >= 0

    @property
    def backed_off(self) -> Bools:
        """Rows not worth a launch now: their back-off after missing capacity has not ended."""
        return self.backed_off_until > self.at

    def hazard_provenance(self, row: int) -> str:
        """The source of a row's hazard, in words."""
        if not self.spot[row]:
            return "on-demand: no preemption"
        prior, hours = self._prior(row), int(self.exposure_ms[row]) / 3_600_000
        if hours == 0 and not self.losses[row]:
            return f"prior: one loss in {prior}"
        lost = int(self.losses[row])
        return f"{lost} {'loss' if lost == 1 else 'losses'} in {hours:.1f} h, with a prior of one in {prior}"

    @cached_property
    def outage_by_provider_h(self) -> Floats:
        """The expected length (hours) of an outage of spot capacity, by provider."""
        counted, providers = self.spot, self.listing.site_provider[self.listing.site]
        return mean_by_group_h(providers, self.returns * counted, self.away_ms * counted)

    @cached_property
    def cells(self) -> Cells:
        """The cells of this market."""
        return self.older_cells if self.older_cells is not None else Cells.of(self.listing, self.hazard)

    def _cells_with(self, hazard: Floats | None) -> Cells | None:
        cells: Cells | None = vars(self).get("cells", self.older_cells)
        return cells if cells is None or hazard is None else cells.renewed(self.listing, self.hazard, hazard)

    @property
    def _hash_base(self) -> tuple[tuple[bytes, ...] | None, frozenset[int]]:
        if "_blocks" in vars(self):
            return self._blocks, frozenset()
        return self.hashed if self.hashed is not None else (None, frozenset())

    @cached_property
    def _blocks(self) -> tuple[bytes, ...]:
        """The hash of each block of rows. Blocks that did not change keep the hash of an older market."""
        known, dirty = self._hash_base
        capacity = (self.backed_off_at, self.backed_off_until, self.losses, self.returns, self.away_ms)
        columns = (self.price, self.effective_at, *capacity)
        return block_hashes(columns, len(self), known, dirty)

    @cached_property
    def digest(self) -> str:
        """A hash of the facts: offers, prices in effect, doubts, refusals, losses and other inputs, but not their age.

        Two markets with the same digest know the same: nothing was learned between them.
        """
        digest = self._declared.copy()
        digest.update(b"".join(self._blocks))
        return digest.hexdigest()

    @cached_property
    def _declared(self) -> hashlib.blake2b:
        """The beginning of the digest: the facts that do not depend on prices and lost machines."""
        given = (self.startup, self.starts, self.priors, self.doubts)
        return declared(self.listing.digest, given, self.rooms, self.room, self.courses, self.level)


def _recency(point: PricePoint) -> tuple[int, int, int]:
    return point.effective_at_ms, point.observed_at_ms, point.nano_usd_per_hour
