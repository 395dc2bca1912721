"""Offer: something rentable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CapacityType(StrEnum):
    """How an instance is bought: spot may be taken back, on-demand is kept."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class Offer:
    """One instance type in one zone, bought one way.

    `gpu` is a canonical name of providers.hardware (None: CPU only). `simulated` offers are shown as such everywhere.
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
        """Stable identity: provider/region/zone/instance_type/capacity_type."""
        return f"{self.provider}/{self.region}/{self.zone}/{self.instance_type}/{self.capacity_type}"

    @property
    def spot(self) -> bool:
        return self.capacity_type is CapacityType.SPOT


def location_of(offer_id: str) -> tuple[str, str, str]:
    """(provider, region, zone) of an offer's id."""
    provider, region, zone, *_ = offer_id.split("/")
    return provider, region, zone


def region_of(offer_id: str) -> str:
    """The region in an offer's id."""
    return offer_id.split("/")[1]
