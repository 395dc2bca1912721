"""Adapter from a tick simulator's job and market to `decide`, using only what was observed.

The tariff holds the cost of moving the checkpoint between zones; moving takes no time, as in these simulators. Every
zone is a site with one spot and one on-demand offer. One step is one second of work. If a market has a `speed` for each
zone (hours of work per hour; not part of the protocol), each speed is a kind of machine.

The caller's objects are read by attribute.
"""

from __future__ import annotations

import math
from typing import Any

from orchestrator.market import AvailabilityKind, AvailabilityPoint, Location, Market
from orchestrator.model import CheckpointSpec, Job, JobSpec, Plan, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy.decide import decide
from orchestrator.policy.demand import Demand, MoveLimits, Running
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SPOT, ON_DEMAND = "spot", "on_demand"
TickPlace = tuple[int, str]  # zone and capacity type, as in the protocol

_PROVIDER = "tick"
_HOUR_MS = 3_600_000
_MOVED_BYTES = 1_000  # takes no time on any link; the tariff scales its cost to the checkpoint's
_GPU = "V100"
_EXACT = 10**12  # steps behind the throughput, which makes it exact
_SOURCE = "reported by the simulator"


class _Egress:
    """Egress prices by zone."""

    def __init__(self, usd_per_gb: Any, checkpoint_gb: float) -> None:
        scale = checkpoint_gb * 1e9 / _MOVED_BYTES
        self._nano = [[round(float(cell) * scale * 1e9) for cell in row] for row in usd_per_gb]

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD per 10^9 of the nominal bytes (_MOVED_BYTES)."""
        if source == target:
            return 0
        return self._nano[int(source[1][1:])][int(target[1][1:])]


def require_valid(job: Any, market: Any) -> None:
    """Raises ValueError for a job or market that cannot be played."""
    zones = len(market.zones)
    if zones == 0 or len(market.on_demand_usd_per_hour) != zones or len(market.egress_usd_per_gb) != zones:
        raise ValueError(f"a market needs zones with an on-demand price and egress prices each: {market}")
    if not (market.tick_hours > 0 and job.work_hours > 0 and job.restart_overhead_hours >= 0):
        raise ValueError(f"ticks and work must be positive and the overhead at least 0: {job}, {market}")


def speeds(market: Any) -> tuple[float, ...]:
    """Hours of work per hour in each zone; 1 everywhere if the market does not say. Raises ValueError."""
    found = tuple(float(each) for each in getattr(market, "speed", ())) or (1.0,) * len(market.zones)
    if len(found) != len(market.zones) or min(found) <= 0:
        raise ValueError(f"a market with speeds needs a positive one for each zone: {market}")
    return found


class TickAdapter:
    """Collects the observations of one job and asks `decide`. Raises ValueError for an invalid job or market."""

    def __init__(self, job: Any, market: Any) -> None:
        require_valid(job, market)
        zones = self.zones = len(market.zones)
        self.speed = speeds(market)
        self.tick_ms = float(market.tick_hours) * _HOUR_MS
        # Kinds differ only by name (1, 2, 3 ... GPUs of one model); their speeds are known.
        kinds = {speed: count for count, speed in enumerate(sorted(set(self.speed)), 1)}
        self.offers = {
            (z, kind): _offer(z, kind, kinds[self.speed[z]]) for z in range(zones) for kind in (SPOT, ON_DEMAND)
        }
        self.location_of = {offer.id: place for place, offer in self.offers.items()}
        self.points: list[AvailabilityPoint] = []
        self._tariff = _Egress(market.egress_usd_per_gb, job.checkpoint_gb)
        self._startup = {_PROVIDER: job.restart_overhead_hours * 3600.0}
        self._steps = math.ceil(job.work_hours * 3600.0)
        known = [Observation("job", _GPU, count, speed, _EXACT, 0) for speed, count in kinds.items()]
        self._perf = PerfBook.as_of(0, known)
        self._deadline_ms = round(job.deadline_hours * _HOUR_MS)
        self._fixed = [
            PricePoint(self.offers[z, ON_DEMAND].id, usd(float(price)), 0, 0, _SOURCE)
            for z, price in enumerate(market.on_demand_usd_per_hour)
        ]
        self._jobs: dict[tuple[tuple[str, ...], bool], Job] = {}

    def at_ms(self, seen: Any) -> int:
        """The market time (ms) of an observation."""
        return round(int(seen.tick) * self.tick_ms)

    def saw(self, seen: Any, place: TickPlace, kind: AvailabilityKind) -> None:
        """Record what happened to a machine in this tick."""
        self.points.append(AvailabilityPoint(self.offers[place].id, self.at_ms(seen), kind))

    def plan(
        self,
        seen: Any,
        kinds: tuple[str, ...],
        running: Running | None = None,
        *,
        deadline: bool = False,
        limits: MoveLimits | None = None,
    ) -> Plan:
        """The plan of `decide` now, with these capacity types; `deadline`: whether the job has its deadline."""
        at_ms = self.at_ms(seen)
        spot = [
            PricePoint(self.offers[z, SPOT].id, usd(float(price)), at_ms, at_ms, _SOURCE)
            for z, price in enumerate(seen.spot_usd_per_hour)
        ]
        market = Market.as_of(
            at_ms,
            offers=self.offers.values(),
            prices=[*self._fixed, *spot],
            availability=self.points,
            polls=[((_PROVIDER, "", None), at_ms)],
            startup_s=self._startup,
            tariff=self._tariff,
        )
        here = seen.checkpoint_zone
        demand = Demand(
            job=self._job(kinds, deadline),
            total_steps=self._steps,
            done_steps=min(int(seen.done_hours * 3600.0), self._steps),
            checkpoint_bytes=_MOVED_BYTES,
            checkpoint_s=0.0,
            checkpoint_at=None if here is None else (_PROVIDER, _region(here)),
        )
        return decide([demand], market, self._perf, {} if running is None else {"job": running}, limits=limits)

    def order(self, plan: Plan, kind: str) -> list[int]:
        """Zones in the plan's order: the choice, other fits, then those that do not fit now (such as a lost zone)."""
        ranked = [self.location_of[each.offer_id] for each in plan.placements[0].alternatives]
        return [zone for zone, of in ranked if of == kind]

    def _job(self, kinds: tuple[str, ...], deadline: bool) -> Job:
        key = (kinds, deadline)
        if key not in self._jobs:
            spec = JobSpec(
                name="job",
                train=TrainSpec("job:work", None, {}, "/", {}, (), self._steps, None),
                capacity=tuple(CapacityType(kind) for kind in kinds),
                deadline_at_ms=self._deadline_ms if deadline else None,
                checkpoint=CheckpointSpec(max_overhead=0.0),
                probe=False,
            )
            self._jobs[key] = Job("job", spec, "tick", 0, "running")
        return self._jobs[key]


def _region(zone: int) -> str:
    return f"z{zone:03}"


def _offer(zone: int, kind: str, gpus: int) -> Offer:
    return Offer(_PROVIDER, _region(zone), _region(zone), "machine", _GPU, gpus, 1, 1, CapacityType(kind))
