"""Views of `offers`. They import no slow modules, because the command must respond in a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.model import Estimate
from providers.offer import Offer
from providers.price import PricePoint

PARTS = ("simulated", "enabled", "elsewhere")
"""The parts of a list of offers, in order: simulated ones, those of enabled providers, and all others."""


@dataclass(frozen=True, slots=True)
class OfferRow:
    """One offer. With a job, also its speed (steps per market second), cost per step and cost to finish there.

    `enabled`: machines can be rented there; otherwise the row is from the catalogue and `age_s` is the age of its
    price.
    """

    id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    gpu: str | None
    gpu_count: int
    vcpu: int  # 0: not known
    memory_bytes: int  # 0: not known
    spot: bool
    nano_usd_per_hour: int | None
    effective_at_ms: int | None
    age_s: float | None  # seconds since the provider was last polled
    source: str
    simulated: bool
    enabled: bool = True
    steps_per_s: float | None = None
    nano_usd_per_step: float | None = None
    duration_s: float | None = None
    cost_nano_usd: int | None = None
    cost_low_nano_usd: int | None = None
    cost_high_nano_usd: int | None = None
    relative_speed: Estimate | None = None  # without measurements; relative to the machine in its provenance

    @property
    def part(self) -> str:
        """The part of the list (one of PARTS) that it belongs to."""
        return "simulated" if self.simulated else "enabled" if self.enabled else "elsewhere"

    @classmethod
    def of(
        cls, offer: Offer, price: PricePoint | None, *, age_s: float | None, source: str, simulated: bool, enabled: bool
    ) -> OfferRow:
        """An offer with its price (None: unknown), last confirmed `age_s` seconds ago."""
        return cls(
            offer.id,
            offer.provider,
            offer.region,
            offer.zone,
            offer.instance_type,
            offer.gpu,
            offer.gpu_count,
            offer.vcpu,
            offer.memory_bytes,
            offer.spot,
            None if price is None else price.nano_usd_per_hour,
            None if price is None else price.effective_at_ms,
            age_s,
            source,
            simulated,
            enabled,
        )


@dataclass(frozen=True, slots=True)
class OfferGroup:
    """The offers with the same GPU, region or cloud: their number, and the first in the order of the list."""

    name: str
    count: int
    best: OfferRow


@dataclass(frozen=True, slots=True)
class OfferList:
    """A list of offers: first the simulated ones, then those of enabled providers, then all others. `count` is the
    number of matches; `offers` may be fewer.

    `not_enabled` are clouds of the catalogue that are not enabled here; Tradewind cannot rent at those in
    `no_provider`, because no provider with that name is installed. `job` is the job for which the offers are ranked;
    `unfit` is the number of matching offers that it cannot use, by constraint.
    """

    kind: ClassVar[str] = "offers"

    at_ms: int
    offers: tuple[OfferRow, ...]
    simulated: bool
    count: int = 0
    groups: tuple[OfferGroup, ...] = ()
    not_enabled: tuple[str, ...] = ()
    no_provider: tuple[str, ...] = ()
    job: str | None = None
    throughput_source: str = ""
    unfit: tuple[tuple[str, int], ...] = ()
    next_cursor: str | None = None  # None on the last page
