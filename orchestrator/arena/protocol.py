"""The tick protocol's values: what a policy is told of its job, its market and each tick.

Any simulator may drive a policy with objects of its own that have these fields; these are ours. Units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

SPOT = "spot"
ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class TickJob:
    """One job. `deadline_hours` counts from the first tick; every launch first sits out the restart overhead."""

    work_hours: float
    deadline_hours: float
    restart_overhead_hours: float
    checkpoint_gb: float


@dataclass(frozen=True, slots=True)
class TickMarket:
    """What never changes. A probe that finds capacity is billed `probe_hours` of that zone's spot price.

    `speed` is ours: hours of work done per hour in each zone. Where a market has none, all machines are of one kind.
    """

    zones: tuple[str, ...]
    on_demand_usd_per_hour: tuple[float, ...]
    egress_usd_per_gb: tuple[tuple[float, ...], ...]
    tick_hours: float
    probe_hours: float
    speed: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known at the begin of a tick. Prices are offers; capacity must be found out."""

    tick: int
    elapsed_hours: float
    ticks_left: int
    done_hours: float
    running: tuple[int, str] | None
    overhead_left_hours: float
    preempted: bool
    spot_usd_per_hour: tuple[float, ...]
    checkpoint_zone: int | None


class Cloud(Protocol):
    """What a policy may do within a tick: one launch that succeeds, or a termination; probes at any time before."""

    def try_launch(self, zone: int, kind: str) -> bool: ...

    def probe(self, zone: int) -> bool: ...

    def terminate(self) -> None: ...


class TickPolicy(Protocol):
    """Started once, then asked at every tick."""

    def start(self, job: TickJob, market: TickMarket) -> None: ...

    def step(self, observation: Observation, cloud: Cloud) -> None: ...


class RuleBroken(Exception):
    """A policy called the cloud in a way that the protocol forbids."""
