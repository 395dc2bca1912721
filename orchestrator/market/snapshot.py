"""Market: offers, prices, capacity and hazard as known at one instant, in columns.

A row is an offer (sorted by id); `Offer` objects are views made on demand, because a hundred thousand of them cannot be
ranked in milliseconds. The only way to a Market is `Market.as_of(t)`, which drops everything observed after t: no
policy can see the future.

Must not know: jobs, throughput, how points are stored.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.availability import AvailabilityPoint, Sightings, hazard_per_hour, summarise
from orchestrator.market.transfer import Place
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEFAULT_STARTUP_S = 360.0  # cold start of a cloud machine to a ready trainer: 6 min (SkyNomad, arXiv 2601.06520)

_SEAL = object()


@dataclass(frozen=True, eq=False, kw_only=True)
class Market:
    """Everything known at `at` (epoch ms of market time). All columns are read-only and as long as `ids`.

    `price` is nano-USD per hour and -1 where none is known; `confirmed_at` is when we last saw that price in force (its
    observation, or a later poll of its provider). `gpu_kind` indexes `gpu_names`, -1 is no GPU. `shut_until` is the end
    of the back-off after missing capacity seen at `shut_at` (both -1: none). `hazard` is in losses per hour.
    """

    seal: InitVar[object]
    at: int
    ids: tuple[str, ...]
    provider: tuple[str, ...]
    region: tuple[str, ...]
    zone: tuple[str, ...]
    instance_type: tuple[str, ...]
    gpu_names: tuple[str, ...]
    gpu_kind: Ints
    gpu_count: Ints
    vcpu: Ints
    memory_bytes: Ints
    spot: Bools
    simulated: Bools
    price: Ints
    effective_at: Ints
    confirmed_at: Ints
    shut_at: Ints
    shut_until: Ints
    shut_by_loss: Bools
    losses: Ints
    exposure_ms: Ints
    hazard: Floats
    startup_s: Floats

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Market is only built by Market.as_of")
        for column in vars(self).values():
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    @classmethod
    def as_of(
        cls,
        at_ms: int,
        *,
        offers: Iterable[Offer],
        prices: Iterable[PricePoint],
        availability: Iterable[AvailabilityPoint] = (),
        polls: Iterable[tuple[str, int]] = (),
        startup_s: Mapping[str, float] | None = None,
    ) -> Market:
        """The market as it was known at `at_ms`.

        Points observed later are ignored, and so are prices that were announced but not yet in force. `polls` are
        (provider, instant) of successful price polls: a price that did not change is as fresh as the last poll.
        `startup_s` is the usual time (market seconds) from a launch to a ready trainer, by provider.
        """
        by_id = {offer.id: offer for offer in offers}
        rows = [by_id[offer_id] for offer_id in sorted(by_id)]
        in_force = _in_force(at_ms, prices)
        polled: dict[str, int] = {}
        for provider, polled_ms in polls:
            if polled_ms <= at_ms:
                polled[provider] = max(polled.get(provider, polled_ms), polled_ms)
        seen = defaultdict(list)
        for point in availability:
            if point.at_ms <= at_ms:
                seen[point.offer_id].append(point)
        sightings = [summarise(seen[o.id], at_ms, spot=o.spot) if o.id in seen else Sightings() for o in rows]
        points = [in_force.get(offer.id) for offer in rows]
        names = tuple(sorted({offer.gpu for offer in rows if offer.gpu is not None}))
        kind_of = {name: index for index, name in enumerate(names)}
        startup = startup_s or {}
        return cls(
            seal=_SEAL,
            at=at_ms,
            ids=tuple(offer.id for offer in rows),
            provider=tuple(offer.provider for offer in rows),
            region=tuple(offer.region for offer in rows),
            zone=tuple(offer.zone for offer in rows),
            instance_type=tuple(offer.instance_type for offer in rows),
            gpu_names=names,
            gpu_kind=_ints(-1 if offer.gpu is None else kind_of[offer.gpu] for offer in rows),
            gpu_count=_ints(offer.gpu_count for offer in rows),
            vcpu=_ints(offer.vcpu for offer in rows),
            memory_bytes=_ints(offer.memory_bytes for offer in rows),
            spot=np.fromiter((offer.spot for offer in rows), np.bool_),
            simulated=np.fromiter((offer.simulated for offer in rows), np.bool_),
            price=_ints(-1 if p is None else p.nano_usd_per_hour for p in points),
            effective_at=_ints(-1 if p is None else p.effective_at_ms for p in points),
            confirmed_at=_ints(
                -1 if p is None else max(p.observed_at_ms, polled.get(offer.provider, -1))
                for offer, p in zip(rows, points, strict=True)
            ),
            shut_at=_ints(s.shut_at_ms for s in sightings),
            shut_until=_ints(s.shut_until_ms for s in sightings),
            shut_by_loss=np.fromiter((s.shut_by_loss for s in sightings), np.bool_),
            losses=_ints(s.losses for s in sightings),
            exposure_ms=_ints(s.exposure_ms for s in sightings),
            hazard=np.fromiter(
                (hazard_per_hour(s, spot=o.spot) for o, s in zip(rows, sightings, strict=True)), np.float64
            ),
            startup_s=np.fromiter((startup.get(offer.provider, DEFAULT_STARTUP_S) for offer in rows), np.float64),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {offer_id: row for row, offer_id in enumerate(self.ids)}

    def row(self, offer_id: str) -> int | None:
        """The row of an offer, None if it is not listed."""
        return self._rows.get(offer_id)

    def gpu(self, row: int) -> str | None:
        """Canonical GPU name of a row, None for CPU only."""
        kind = int(self.gpu_kind[row])
        return None if kind < 0 else self.gpu_names[kind]

    def place(self, row: int) -> Place:
        """Where the row's machines stand, for transfer costs."""
        return self.provider[row], self.region[row]

    def offer(self, row: int) -> Offer:
        """The row as an Offer."""
        return Offer(
            provider=self.provider[row],
            region=self.region[row],
            zone=self.zone[row],
            instance_type=self.instance_type[row],
            gpu=self.gpu(row),
            gpu_count=int(self.gpu_count[row]),
            vcpu=int(self.vcpu[row]),
            memory_bytes=int(self.memory_bytes[row]),
            capacity_type=CapacityType.SPOT if self.spot[row] else CapacityType.ON_DEMAND,
            simulated=bool(self.simulated[row]),
        )

    @cached_property
    def price_age_s(self) -> Floats:
        """Seconds since each price was last seen in force (0 where none is known)."""
        return np.where(self.price >= 0, (self.at - self.confirmed_at) / 1000, 0.0)

    @property
    def priced(self) -> Bools:
        """Rows whose price is known."""
        return self.price >= 0

    @property
    def shut(self) -> Bools:
        """Rows that are not worth a launch now: their back-off after missing capacity has not passed."""
        return self.shut_until > self.at

    def hazard_provenance(self, row: int) -> str:
        """Where a row's hazard comes from, for people."""
        if not self.spot[row]:
            return "on-demand: no preemption"
        hours = int(self.exposure_ms[row]) / 3_600_000
        if hours == 0 and not self.losses[row]:
            return "prior: one loss in 8 h"
        lost = int(self.losses[row])
        return f"{lost} {'loss' if lost == 1 else 'losses'} in {hours:.1f} h, with a prior of one in 8 h"

    @cached_property
    def digest(self) -> str:
        """Hash of the facts: offers, prices in force, refusals and losses; not of their age.

        Two markets with the same digest know the same: nothing was learned between them.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\n".join(self.ids).encode())
        digest.update("\n".join(self.gpu_names).encode())
        for column in (
            self.gpu_kind,
            self.gpu_count,
            self.vcpu,
            self.memory_bytes,
            self.simulated,
            self.price,
            self.effective_at,
            self.shut_at,
            self.shut_until,
            self.losses,
            self.startup_s,
        ):
            digest.update(column.tobytes())
        return digest.hexdigest()


def _in_force(at_ms: int, prices: Iterable[PricePoint]) -> dict[str, PricePoint]:
    """Of each offer the newest point that is both observed and effective; of equals, the one observed last."""
    newest: dict[str, PricePoint] = {}
    for point in prices:
        if point.observed_at_ms > at_ms or point.effective_at_ms > at_ms:
            continue
        known = newest.get(point.offer_id)
        if known is None or _recency(point) > _recency(known):
            newest[point.offer_id] = point
    return newest


def _recency(point: PricePoint) -> tuple[int, int, int]:
    return point.effective_at_ms, point.observed_at_ms, point.nano_usd_per_hour


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)
