"""On-demand only and greedy spot, between which every policy should lie, and the common part of all baselines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_EPS = 1e-9


class Baseline(ABC):
    """A policy's job, market and tick arithmetic. Subclasses implement `step`."""

    name = ""
    job: TickJob
    market: TickMarket
    speed: tuple[float, ...]

    def start(self, job: TickJob, market: TickMarket) -> None:
        """Set up for one job on one market."""
        self.job, self.market = job, market
        self.speed = market.speed or (1.0,) * len(market.zones)

    def work_left(self, seen: Observation) -> float:
        """Hours of work left."""
        return max(self.job.work_hours - seen.done_hours, 0.0)

    @abstractmethod
    def step(self, seen: Observation, cloud: Cloud) -> None:
        """Act on one tick's observation."""

    def ticks_needed(self, seen: Observation, overhead_h: float, zone: int | None = None) -> int:
        """Whole ticks for an overhead and the remaining work without interruption, in a zone or on the fastest kind."""
        speed = max(self.speed) if zone is None else self.speed[zone]
        return math.ceil((self.work_left(seen) / speed + overhead_h) / self.market.tick_hours - _EPS)

    def must_buy(self, seen: Observation, overheads: float = 1.0) -> bool:
        """Whether this is the last tick at which on-demand, with this many overheads, still meets the deadline."""
        return self.ticks_needed(seen, overheads * self.job.restart_overhead_hours) >= seen.ticks_left

    def late(self, seen: Observation, overheads: float = 1.0) -> bool:
        """The same with one tick in reserve."""
        return self.ticks_needed(seen, overheads * self.job.restart_overhead_hours) + 1 >= seen.ticks_left

    def steady(self, seen: Observation) -> bool:
        """Whether the current machine uses no slack: it is of the fastest kind and past its overhead."""
        running = seen.running
        return running is not None and seen.overhead_left_hours <= 0 and self.speed[running[0]] == max(self.speed)

    def by_price(self, seen: Observation) -> list[int]:
        """Zones by spot price per work, cheapest first."""
        cost = self.per_work(seen)
        return sorted(range(len(cost)), key=lambda z: (cost[z], z))

    def per_work(self, seen: Observation) -> list[float]:
        """US$ of spot per hour of work, for each zone."""
        return [price / speed for price, speed in zip(seen.spot_usd_per_hour, self.speed, strict=True)]

    def buy(self, seen: Observation, cloud: Cloud) -> None:
        """Launch on-demand where it is cheapest including egress, among zones that still meet the deadline if any
        do."""
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
        """Launch spot in the first zone of `order` that has capacity. Returns whether any has."""
        return any(cloud.try_launch(zone, SPOT) for zone in order)


class Latched(Baseline):
    """SkyNomad's simulator around a policy: at the last safe tick its safety net switches to on-demand for good, in the
    current zone if any, even from a running spot machine, and does not consult the policy again."""

    latched = False

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if not (self.latched or self.must_buy(seen)):
            self.choose(seen, cloud)
            return
        self.latched = True
        if seen.running is not None:
            self.buy_here(seen, cloud, seen.running[0])
        else:
            self.buy(seen, cloud)

    def buy_here(self, seen: Observation, cloud: Cloud, zone: int) -> None:
        """Launch on-demand in this zone, or where it still meets the deadline."""
        if self.ticks_needed(seen, self.job.restart_overhead_hours, zone) <= seen.ticks_left:
            cloud.try_launch(zone, ON_DEMAND)
        else:
            self.buy(seen, cloud)

    @abstractmethod
    def choose(self, seen: Observation, cloud: Cloud) -> None:
        """Act on one tick's observation before the safety net takes over."""


class OnDemandOnly(Baseline):
    """Starts on-demand at once and stays there."""

    name = "on-demand"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if seen.running is None:
            self.buy(seen, cloud)


class Greedy(Baseline):
    """Spot in the cheapest zone with capacity, until it is lost; on-demand for good at the last safe tick."""

    name = "greedy"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if seen.running is not None and seen.running[1] == ON_DEMAND:
            return
        if self.late(seen) and not self.steady(seen):
            self.buy(seen, cloud)
        elif seen.running is None:
            self.first_spot(self.by_price(seen), cloud)
