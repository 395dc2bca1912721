"""On-demand only and greedy spot: the two ends between which every policy must lie. And what all baselines share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_EPS = 1e-9


class Baseline(ABC):
    """Job, market and the arithmetic of ticks. Subclasses have `step`."""

    name = ""
    job: TickJob
    market: TickMarket
    speed: tuple[float, ...]

    def start(self, job: TickJob, market: TickMarket) -> None:
        self.job, self.market = job, market
        self.speed = market.speed or (1.0,) * len(market.zones)

    def work_left(self, seen: Observation) -> float:
        return max(self.job.work_hours - seen.done_hours, 0.0)

    @abstractmethod
    def step(self, seen: Observation, cloud: Cloud) -> None:
        """What this policy orders at a tick."""

    def ticks_needed(self, seen: Observation, overhead_h: float, zone: int | None = None) -> int:
        """Whole ticks to sit out an overhead and finish without interruption: in a zone, or on the fastest kind."""
        speed = max(self.speed) if zone is None else self.speed[zone]
        return math.ceil((self.work_left(seen) / speed + overhead_h) / self.market.tick_hours - _EPS)

    def must_buy(self, seen: Observation, overheads: float = 1.0) -> bool:
        """It is the last tick at which a fresh on-demand instance (with so many overheads) still makes the deadline."""
        return self.ticks_needed(seen, overheads * self.job.restart_overhead_hours) >= seen.ticks_left

    def late(self, seen: Observation, overheads: float = 1.0) -> bool:
        """The same with one tick kept back."""
        return self.ticks_needed(seen, overheads * self.job.restart_overhead_hours) + 1 >= seen.ticks_left

    def steady(self, seen: Observation) -> bool:
        """What runs uses up no slack: of the fastest kind and past its overhead. When it is lost there is time."""
        running = seen.running
        return running is not None and seen.overhead_left_hours <= 0 and self.speed[running[0]] == max(self.speed)

    def by_price(self, seen: Observation) -> list[int]:
        """Zones, the cheapest spot first."""
        cost = self.per_work(seen)
        return sorted(range(len(cost)), key=lambda z: (cost[z], z))

    def per_work(self, seen: Observation) -> list[float]:
        """US$ on spot for an hour's work, in each zone."""
        return [price / speed for price, speed in zip(seen.spot_usd_per_hour, self.speed, strict=True)]

    def buy(self, seen: Observation, cloud: Cloud) -> None:
        """On-demand where it is cheapest, egress counted, of what still makes the deadline if anything does."""
        zone, kind = seen.running or (None, "")
        if kind == ON_DEMAND and self.ticks_needed(seen, seen.overhead_left_hours, zone) <= seen.ticks_left:
            return
        overhead, left = self.job.restart_overhead_hours, self.work_left(seen)
        prices, egress = self.market.on_demand_usd_per_hour, self.market.egress_usd_per_gb
        here = seen.checkpoint_zone

        def worth(z: int) -> tuple[float, bool, int]:
            moving = 0.0 if here is None else self.job.checkpoint_gb * egress[here][z]
            return prices[z] * (left / self.speed[z] + overhead) + moving, z != here, z

        zones = range(len(prices))
        quick = [z for z in zones if self.ticks_needed(seen, overhead, z) <= seen.ticks_left]
        fastest = [z for z in zones if self.speed[z] == max(self.speed)]
        cloud.try_launch(min(quick or fastest, key=worth), ON_DEMAND)

    def first_spot(self, order: list[int], cloud: Cloud) -> bool:
        """The first zone of `order` that has spot capacity."""
        return any(cloud.try_launch(zone, SPOT) for zone in order)


class Latched(Baseline):
    """SkyNomad's simulator around a policy: at the last safe tick its safety net buys on-demand for good, where the job
    runs if anywhere, even from a spot instance that is up, and asks the policy no more."""

    latched = False

    def step(self, seen: Observation, cloud: Cloud) -> None:
        if not (self.latched or self.must_buy(seen)):
            self.choose(seen, cloud)
            return
        self.latched = True
        if seen.running is not None:
            self.buy_here(seen, cloud, seen.running[0])
        else:
            self.buy(seen, cloud)

    def buy_here(self, seen: Observation, cloud: Cloud, zone: int) -> None:
        """On-demand in this zone, or where it still makes the deadline."""
        if self.ticks_needed(seen, self.job.restart_overhead_hours, zone) <= seen.ticks_left:
            cloud.try_launch(zone, ON_DEMAND)
        else:
            self.buy(seen, cloud)

    @abstractmethod
    def choose(self, seen: Observation, cloud: Cloud) -> None:
        """What the policy orders at a tick before that."""


class OnDemandOnly(Baseline):
    """Starts on demand at once and stays."""

    name = "on-demand"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        if seen.running is None:
            self.buy(seen, cloud)


class Greedy(Baseline):
    """The cheapest zone that launches, kept until it is lost; on-demand at the last safe tick, for good."""

    name = "greedy"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        if seen.running is not None and seen.running[1] == ON_DEMAND:
            return
        if self.late(seen) and not self.steady(seen):
            self.buy(seen, cloud)
        elif seen.running is None:
            self.first_spot(self.by_price(seen), cloud)
