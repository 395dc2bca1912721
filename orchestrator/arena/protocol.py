"""Protocol: the values of the tick protocol, which describe a policy's job, its market and each tick.

Any simulator may drive a policy with its own objects that have these fields. Units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

SPOT = "spot"
ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class TickJob:
    """One job. `deadline_hours` counts from the first tick; every launch starts with the restart overhead."""

    work_hours: float
    deadline_hours: float
    restart_overhead_hours: float
    checkpoint_gb: float


@dataclass(frozen=True, slots=True)
class TickMarket:
    """The constants of a market. A probe that finds capacity is billed `probe_hours` of that zone's spot price.

    `speed` is Tradewind's addition: hours of work per hour in each zone. If empty, all machines are of one kind.
    """

    zones: tuple[str, ...]
    on_demand_usd_per_hour: tuple[float, ...]
    egress_usd_per_gb: tuple[tuple[float, ...], ...]
    tick_hours: float
    probe_hours: float
    speed: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """The facts known at the start of a tick. Prices are offers; capacity must be tried."""

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
    """The actions of a policy in a tick: one successful launch or a termination, and probes before that."""

    def try_launch(self, zone: int, kind: str) -> bool:
        """Launch in a zone; `kind` is SPOT or ON_DEMAND. Returns whether it succeeded. Raises RuleBroken."""
        ...

    def probe(self, zone: int) -> bool:
        """Whether a zone has spot capacity; a positive answer is billed. Raises RuleBroken."""
        ...

    def terminate(self) -> None:
        """End the running machine, if any. Raises RuleBroken after a launch in the same tick."""
        ...


class TickPolicy(Protocol):
    """A policy: started once, then called at every tick."""

    def start(self, job: TickJob, market: TickMarket) -> None:
        """Set up for one job on one market."""
        ...

    def step(self, observation: Observation, cloud: Cloud) -> None:
        """Look at one tick's observation and act on the cloud."""
        ...


class RuleBroken(Exception):
    """A policy called the cloud in a way that the protocol forbids."""
