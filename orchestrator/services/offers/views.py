"""What `offers` answers. Loads nothing heavy: the command must answer in a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.model import Estimate
from providers.offer import Offer
from providers.price import PricePoint


@dataclass(frozen=True, slots=True)
class OfferRow:
    """One offer. With a job, also what the job makes of it: steps per second, dollars per step, cost to finish.

    `enabled`: machines can be rented there now; otherwise the row is the catalogue's and `age_s` the age of its price.
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
    age_s: float | None  # since the provider was last asked
    source: str
    simulated: bool
    enabled: bool = True
    steps_per_s: float | None = None
    nano_usd_per_step: float | None = None
    duration_s: float | None = None
    cost_nano_usd: int | None = None
    cost_low_nano_usd: int | None = None
    cost_high_nano_usd: int | None = None
    relative_speed: Estimate | None = None  # while unmeasured: against the machine of its provenance

    @classmethod
    def of(
        cls, offer: Offer, price: PricePoint | None, *, age_s: float | None, source: str, simulated: bool, enabled: bool
    ) -> OfferRow:
        """An offer at its price (None: not known), `age_s` seconds after that was last seen in force."""
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
    """The offers that share a GPU, a region or a cloud: how many, and the first of them in the order of the list."""

    name: str
    count: int
    best: OfferRow


@dataclass(frozen=True, slots=True)
class OfferList:
    """Simulated offers come first and are ranked among themselves. `count` is how many match, `offers` may be fewer.

    `not_enabled` are the clouds of which the catalogue speaks and that are not enabled here. `job` names the job that
    they are ranked for, `unfit` counts offers that match and that it cannot use, by constraint.
    """

    kind: ClassVar[str] = "offers"

    at_ms: int
    offers: tuple[OfferRow, ...]
    simulated: bool
    count: int = 0
    groups: tuple[OfferGroup, ...] = ()
    not_enabled: tuple[str, ...] = ()
    job: str | None = None
    throughput_source: str = ""
    unfit: tuple[tuple[str, int], ...] = ()
    next_cursor: str | None = None  # of the next page; None: this is the last one
