"""Offer: a machine type in one zone that can be rented, spot or on-demand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CapacityType(StrEnum):
    """How an instance is bought: the provider may reclaim spot, but not on-demand."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class OfferId:
    """The name of an offer: `provider/region/zone/instance_type/capacity_type`, such as
    `local/west/west-b/sim.large/spot`. Region and zone are empty if the provider has none; the other parts are never
    empty.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    capacity_type: CapacityType

    @classmethod
    def parse(cls, text: str) -> OfferId:
        """The parts of an offer's id. Raises ValueError for a text of another form."""
        parts = text.split("/")
        if len(parts) != 5 or not parts[0] or not parts[3]:
            raise ValueError(f"{text!r} is not an offer id: provider/region/zone/instance_type/spot or .../on_demand")
        provider, region, zone, instance_type, capacity_type = parts
        return cls(provider, region, zone, instance_type, CapacityType(capacity_type))

    def __str__(self) -> str:
        return f"{self.provider}/{self.region}/{self.zone}/{self.instance_type}/{self.capacity_type}"

    @property
    def spot(self) -> bool:
        """True for spot capacity."""
        return self.capacity_type is CapacityType.SPOT


@dataclass(frozen=True, slots=True)
class Offer:
    """One instance type in one zone, bought as spot or on-demand.

    `gpu` is a canonical name of providers.hardware (None: CPU only). Offers with `simulated` are marked as such
    wherever they are shown.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    gpu: str | None
    gpu_count: int
    vcpu: int
    memory_bytes: int
    capacity_type: CapacityType
    simulated: bool = False

    @property
    def id(self) -> str:
        """Stable identifier: provider/region/zone/instance_type/capacity_type."""
        return f"{self.provider}/{self.region}/{self.zone}/{self.instance_type}/{self.capacity_type}"

    @property
    def spot(self) -> bool:
        """True for spot capacity."""
        return self.capacity_type is CapacityType.SPOT


# For valid ids only: decisions need these parts of every offer, so they do not parse the whole id.


def provider_of(offer_id: str) -> str:
    """The provider of an offer id."""
    return offer_id.partition("/")[0]


def location_of(offer_id: str) -> tuple[str, str, str]:
    """The (provider, region, zone) of an offer id."""
    provider, region, zone, *_ = offer_id.split("/")
    return provider, region, zone


def region_of(offer_id: str) -> str:
    """The region of an offer id."""
    return offer_id.split("/")[1]


def short_zone(offer_id: str) -> str:
    """`local/sim-east/sim-east-1a/cpu.s/spot` -> `local/sim-east-1a`; the region if there is no zone."""
    provider, region, zone = location_of(offer_id)
    return f"{provider}/{zone or region}"
