"""MarketReader: reads the market for decisions: once in full, and afterwards only the changes.

The result is the same either way. Reading 100,000 offers takes a second, and a decision is due with every new price and
before each step of a migration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from orchestrator.config import Config
from orchestrator.engine.inputs import latencies, price_courses, priors
from orchestrator.engine.inputs.latencies import PlaceAndKind
from orchestrator.engine.inputs.price_courses import PriceCourses
from orchestrator.market import (
    AvailabilityKind,
    AvailabilityPoint,
    HazardPrior,
    Listing,
    Market,
    PriceColumns,
    QuotaName,
    Rooms,
    Tariff,
    prior_hazard,
    rooms,
    rooms_without,
    units_taken,
)
from orchestrator.perf import InstanceKind, Latencies, kind_of
from orchestrator.store import AvailabilityPoint as StoredPoint
from orchestrator.store import MarketChanges, Named, Tx
from orchestrator.store.market.quotas import read_quotas
from orchestrator.store.queries.runs import Start
from providers.offer import provider_of

Floats = NDArray[np.float64]
DAY_MS = 86_400_000
AVAILABILITY_WINDOW_MS = 30 * DAY_MS
NO_LONGER_SOLD = "its provider no longer offers it"


@dataclass(frozen=True)
class _Read:
    """The market as read at `at_ms`: the enabled providers' offers, and `withdrawn` ones on which jobs run.

    `coming` are offers whose newest price is not in force yet. `hazard` is computed from `priors`, and these from the
    interruption rates stored up to the number `risk_seq`; the next one takes effect at `next_risk_ms` (None: never).
    `rooms` are the free units of the `quotas` at the time of their report. `availability` are the observations stored
    up to the number `availability_seq`, and `starts` follow from `started`, both by provider."""

    at_ms: int
    changes: MarketChanges
    enabled: tuple[str, ...]
    withdrawn: tuple[str, ...]
    listing: Listing
    named: tuple[Named, ...]
    prices: PriceColumns
    coming: frozenset[str]
    courses: PriceCourses
    risk_seq: int
    next_risk_ms: int | None
    priors: Mapping[tuple[str, str, str], HazardPrior]
    hazard: Floats
    tariff: Tariff
    quotas: Mapping[str, str]
    rooms: Rooms
    availability_seq: int
    availability: tuple[AvailabilityPoint, ...]
    started: Mapping[str, Sequence[Start]]
    starts: Mapping[str, Latencies[PlaceAndKind]]


class MarketReader:
    """Reads the market, and caches it for the next read. Not thread-safe."""

    def __init__(self) -> None:
        self._last: _Read | None = None

    def read(
        self, tx: Tx, now_ms: int, config: Config, used: Collection[str] = (), besides: str | None = None
    ) -> Market:
        """The market at `now_ms` (market time). It includes the offers `used` (ids), on which jobs run, even if they
        are no longer listed, so that they can be compared. Machines requested for the run `besides` take no quota."""
        last = self._last
        changes, enabled = tx.market_changes(), tuple(config.providers.enabled)
        if (
            last is None
            or now_ms < last.at_ms
            or enabled != last.enabled
            or changes.prices < last.changes.prices  # another store
            or changes.offers != last.changes.offers
            or tuple(sorted(_withdrawn(last, used))) != last.withdrawn
        ):
            last = _read_all(tx, now_ms, config, used, changes)
        else:
            last = _brought_up_to_date(tx, now_ms, config, last, changes)
        self._last = last
        return _market(tx, now_ms, last, besides)


def _withdrawn(last: _Read, used: Collection[str]) -> set[str]:
    """The used offers that were no longer listed at the last read."""
    return {name for name in used if name in last.withdrawn or last.listing.row(name) is None}


def _read_all(tx: Tx, now_ms: int, config: Config, used: Collection[str], changes: MarketChanges) -> _Read:
    enabled = tuple(config.providers.enabled)
    offers = tx.offers(enabled)  # offers of other sources are only shown: nothing can be launched there
    listed = {offer.id for offer in offers}
    withdrawn = [offer for name in sorted({*used} - listed) if (offer := tx.offer(name)) is not None]
    listing = Listing.of([*offers, *withdrawn])
    prices = PriceColumns.unknown(len(listing)).renewed(listing, (), tx.payable_as_of(now_ms))
    availability_seq, availability = tx.availability_after(0, now_ms - AVAILABILITY_WINDOW_MS)
    return _Read(
        at_ms=now_ms,
        changes=changes,
        enabled=enabled,
        withdrawn=tuple(sorted({*used} - listed)),
        listing=listing,
        named=tx.named(),
        prices=prices,
        coming=frozenset(tx.not_in_force(now_ms)),
        courses=price_courses.learned(tx, listing, now_ms),
        risk_seq=tx.risk_seq(),
        next_risk_ms=tx.next_risk_ms(now_ms),
        priors=(known := _priors(tx, listing, now_ms)),
        hazard=prior_hazard(listing, known),
        tariff=priors.tariff(listing.shapes),
        quotas=(quotas := tx.quotas_stored()),
        rooms=_rooms(listing, quotas),
        availability_seq=availability_seq,
        availability=_points(availability),
        started=(started := latencies.started(tx, config)),
        starts=latencies.starts(started, config, partial(_kind_at, listing)),
    )


def _points(stored: Iterable[StoredPoint]) -> tuple[AvailabilityPoint, ...]:
    return tuple(AvailabilityPoint(each.offer_id, each.at_ms, cast("AvailabilityKind", each.kind)) for each in stored)


def _kind_at(listing: Listing, offer_id: str) -> InstanceKind | None:
    row = listing.row(offer_id)
    if row is None:
        return None
    shape = listing.shapes[int(listing.shape[row])]
    return kind_of(shape.gpu, shape.gpu_count)


def _rooms(listing: Listing, stored: Mapping[str, str]) -> Rooms:
    return rooms(listing, {provider: read_quotas(text) for provider, text in stored.items()})


def _taken(tx: Tx, read: _Read, besides: str | None) -> Mapping[QuotaName, int]:
    """The units of quotas taken by machines that were requested after the quotas were reported. The provider counts
    them in its next report; until then no other job may plan to use them."""
    if not read.rooms:
        return {}
    asked_ms = tx.quotas_asked_ms()
    requested = tx.requested_since(min(asked_ms.values(), default=read.at_ms))
    taken: Counter[QuotaName] = Counter()
    for each in requested:
        if each.at_ms >= asked_ms.get(provider_of(each.offer_id), 0) and each.run_id != besides:
            rows = [row for name in (each.offer_id, *each.also) if (row := read.listing.row(name)) is not None]
            largest: Counter[QuotaName] = Counter()
            for row in rows:  # it gets machines of one of them
                largest |= units_taken(read.rooms, [(row, each.machines)])
            taken += largest
    return taken


def _priors(tx: Tx, listing: Listing, now_ms: int) -> Mapping[tuple[str, str, str], HazardPrior]:
    return priors.hazard_priors(listing.shapes, tx.risks_as_of(now_ms))


def _brought_up_to_date(tx: Tx, now_ms: int, config: Config, last: _Read, changes: MarketChanges) -> _Read:
    prices, coming = last.prices, last.coming
    changed = frozenset(tx.prices_changed_since(last.changes.prices)) if changes != last.changes else frozenset()
    if renewed := changed | coming:
        prices = prices.renewed(last.listing, renewed, tx.payable_as_of(now_ms, renewed))
        coming = frozenset(tx.not_in_force(now_ms, renewed))
    risk_seq, next_risk_ms = tx.risk_seq(), last.next_risk_ms
    if risk_seq != last.risk_seq or (next_risk_ms is not None and next_risk_ms <= now_ms):
        known, next_risk_ms = _priors(tx, last.listing, now_ms), tx.next_risk_ms(now_ms)
        last = replace(last, risk_seq=risk_seq, priors=known, hazard=prior_hazard(last.listing, known))
    if (quotas := tx.quotas_stored()) != last.quotas:
        last = replace(last, quotas=quotas, rooms=_rooms(last.listing, quotas))
    since_ms = now_ms - AVAILABILITY_WINDOW_MS
    availability_seq, new = tx.availability_after(last.availability_seq, since_ms)
    if new:
        kept = (each for each in last.availability if each.at_ms >= since_ms)
        last = replace(last, availability_seq=availability_seq, availability=(*kept, *_points(new)))
    if (started := latencies.started(tx, config)) != last.started:
        starts = latencies.starts(started, config, partial(_kind_at, last.listing))
        last = replace(last, started=started, starts=starts)
    changed |= last.coming - coming
    courses = price_courses.learned(tx, last.listing, now_ms, before=last.courses, changed=changed)
    return replace(
        last,
        next_risk_ms=next_risk_ms,
        at_ms=now_ms,
        changes=changes,
        prices=prices,
        coming=coming,
        courses=courses,
    )


def _market(tx: Tx, now_ms: int, read: _Read, besides: str | None) -> Market:
    return Market.as_of(
        now_ms,
        offers=read.listing,
        prices=read.prices,
        doubts={**tx.flagged_as_of(now_ms), **dict.fromkeys(read.withdrawn, NO_LONGER_SOLD)},
        availability=[each for each in read.availability if each.at_ms >= now_ms - AVAILABILITY_WINDOW_MS],
        polls=[((each.provider, each.region, each.spot), each.until_ms) for each in tx.polled(read.named)],
        startup_s={name: known.usual for name, known in read.starts.items()},
        starts={place: each for known in read.starts.values() for place, each in known.at.items()},
        courses=read.courses.courses,
        levels=read.courses.levels,
        priors=read.priors,
        hazard=read.hazard,
        tariff=read.tariff,
        rooms=rooms_without(read.rooms, _taken(tx, read, besides)),
    )
