"""Presents the job and the market of a tick simulator to `decide`, using only observed facts.

The tariff holds the cost of moving the checkpoint between zones; moving takes no time, as in these simulators. Every
zone is a site with one spot and one on-demand offer. One step is one second of work. Each speed is a kind of machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.arena.protocol import ON_DEMAND, SPOT, TickJob, TickMarket
from orchestrator.arena.protocol import Observation as Seen
from orchestrator.market import AvailabilityKind, AvailabilityPoint, Location, Market
from orchestrator.model import CheckpointSpec, Job, JobSpec, Plan, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy.decide import decide
from orchestrator.policy.demand import Demand, Running
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

TickPlace = tuple[int, str]  # zone and capacity type, as in the protocol

_PROVIDER = "tick"
_HOUR_MS = 3_600_000
_MOVED_BYTES = 1_000  # takes no time on any link; the tariff scales its cost to the checkpoint's
_GPU = "V100"
_EXACT = 10**12  # steps behind the throughput, which makes it exact
_SOURCE = "reported by the simulator"


class _Egress:
    """Egress prices by zone."""

    def __init__(self, usd_per_gb: Sequence[Sequence[float]], checkpoint_gb: float) -> None:
        scale = checkpoint_gb * 1e9 / _MOVED_BYTES
        self._nano = [[round(cell * scale * 1e9) for cell in row] for row in usd_per_gb]

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD per 10^9 of the nominal bytes (_MOVED_BYTES)."""
        if source == target:
            return 0
        return self._nano[int(source[1][1:])][int(target[1][1:])]


class TickAdapter:
    """Collects the observations of one job and calls `decide`."""

    def __init__(self, job: TickJob, market: TickMarket, speed: Sequence[float]) -> None:
        zones = range(len(market.zones))
        self.tick_ms = market.tick_hours * _HOUR_MS
        # Kinds differ only by name (1, 2, 3 ... GPUs of one model); their speeds are known.
        kinds = {speed: count for count, speed in enumerate(sorted(set(speed)), 1)}
        self.offers = {(z, kind): _offer(z, kind, kinds[speed[z]]) for z in zones for kind in (SPOT, ON_DEMAND)}
        self.location_of = {offer.id: place for place, offer in self.offers.items()}
        self.points: list[AvailabilityPoint] = []
        self._tariff = _Egress(market.egress_usd_per_gb, job.checkpoint_gb)
        self._startup = {_PROVIDER: job.restart_overhead_hours * 3600.0}
        self._steps = math.ceil(job.work_hours * 3600.0)
        known = [Observation("job", _GPU, count, each, _EXACT, 0) for each, count in kinds.items()]
        self._perf = PerfBook.as_of(0, known)
        self._fixed = [
            PricePoint(self.offers[z, ON_DEMAND].id, usd(price), 0, 0, _SOURCE)
            for z, price in enumerate(market.on_demand_usd_per_hour)
        ]
        self._jobs = {kind: self._job(kind) for kind in (SPOT, ON_DEMAND)}

    def at_ms(self, seen: Seen) -> int:
        """The market time (ms) of an observation."""
        return round(seen.tick * self.tick_ms)

    def saw(self, seen: Seen, place: TickPlace, kind: AvailabilityKind) -> None:
        """Record an event of a machine in this tick."""
        self.points.append(AvailabilityPoint(self.offers[place].id, self.at_ms(seen), kind))

    def plan(self, seen: Seen, kind: str, running: Running | None = None) -> Plan:
        """The plan of `decide` now, without a deadline, among offers of one capacity type."""
        at_ms = self.at_ms(seen)
        spot = [
            PricePoint(self.offers[z, SPOT].id, usd(price), at_ms, at_ms, _SOURCE)
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
            job=self._jobs[kind],
            total_steps=self._steps,
            done_steps=min(int(seen.done_hours * 3600.0), self._steps),
            checkpoint_bytes=_MOVED_BYTES,
            checkpoint_s=0.0,
            checkpoint_at=None if here is None else (_PROVIDER, _region(here)),
        )
        return decide([demand], market, self._perf, {} if running is None else {"job": running}, complete=True)

    def order(self, plan: Plan) -> list[int]:
        """Zones in the plan's order: the choice, other fits, then those that do not fit now (such as a lost zone)."""
        return [self.location_of[each.offer_id][0] for each in plan.placements[0].alternatives]

    def _job(self, kind: str) -> Job:
        spec = JobSpec(
            name="job",
            train=TrainSpec("job:work", None, {}, "/", {}, (), self._steps, None),
            capacity=(CapacityType(kind),),
            deadline_at_ms=None,
            checkpoint=CheckpointSpec(max_overhead=0.0),
            probe=False,
        )
        return Job("job", spec, "tick", 0, "running")


def _region(zone: int) -> str:
    return f"z{zone:03}"


def _offer(zone: int, kind: str, gpus: int) -> Offer:
    return Offer(_PROVIDER, _region(zone), _region(zone), "machine", _GPU, gpus, 1, 1, CapacityType(kind))
