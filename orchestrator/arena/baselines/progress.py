"""Uniform Progress (Wu et al., Can't Be Late, NSDI '24): keep progress at least as far as the share of time gone.
In one zone, lifted to several by us, and lifted to several regions by SkyNomad.

Behind: on-demand if no spot can be had; ahead: wait for spot. From on-demand back to spot only when two overheads
ahead (hysteresis). The safety net buys on demand when no more than that fits before the deadline.
"""

from __future__ import annotations

from orchestrator.arena.baselines.simple import Baseline, Latched
from orchestrator.arena.baselines.static import same_region
from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_EPS = 1e-9


class UniformProgress(Baseline):
    """Lifted to several zones: spot is the cheapest zone that launches."""

    name = "uniform-progress"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        overhead = self.job.restart_overhead_hours
        kind = None if seen.running is None else seen.running[1]
        if kind == SPOT:
            if self.must_buy(seen) and not self.steady(seen):
                self.buy(seen, cloud)
            return
        if self.must_buy(seen, 2.0):
            self.buy(seen, cloud)
            return
        rate = self.job.work_hours / self.job.deadline_hours
        if kind == ON_DEMAND and seen.done_hours < (seen.elapsed_hours + 2 * overhead) * rate:
            return
        if self.first_spot(self.order(seen), cloud):
            return
        if kind is None and seen.done_hours < seen.elapsed_hours * rate:
            self.buy(seen, cloud)

    def order(self, seen: Observation) -> list[int]:
        return self.by_price(seen)


class UniformProgressHere(UniformProgress):
    """The paper's own setting: one zone, the cheapest when the job starts."""

    name = "uniform-progress-1z"
    zone: int | None = None

    def order(self, seen: Observation) -> list[int]:
        if self.zone is None:
            self.zone = self.by_price(seen)[0]
        return [self.zone]


class UniformProgressMulti(Latched):
    """SkyNomad's baseline (NSDI '27; in its artifact "eager failover"): spot by price, the region in which the job ran
    last after all others. Two overheads ahead it gives up on-demand even when no spot can be had, and waits."""

    name = "uniform-progress-multi"

    def start(self, job: TickJob, market: TickMarket) -> None:
        super().start(job, market)
        self.ran: int | None = None  # where it was last seen up; a machine lost in its first tick never was

    def choose(self, seen: Observation, cloud: Cloud) -> None:
        kind = None
        if seen.running is not None:
            self.ran, kind = seen.running
        if kind == SPOT:
            return
        spare = 2 * self.job.restart_overhead_hours
        rate = self.job.work_hours / self.job.deadline_hours
        if kind == ON_DEMAND:
            ahead = seen.done_hours >= (seen.elapsed_hours + spare) * rate - _EPS
            if ahead and not self.first_spot(self._order(seen), cloud):
                cloud.terminate()
            return
        scarce = self.ticks_needed(seen, spare) > seen.ticks_left
        if not scarce and self.first_spot(self._order(seen), cloud):
            return
        if scarce or seen.done_hours < seen.elapsed_hours * rate - _EPS:
            self.buy_here(seen, cloud, 0 if seen.checkpoint_zone is None else seen.checkpoint_zone)

    def _order(self, seen: Observation) -> list[int]:
        order, ran = self.by_price(seen), self.ran
        if ran is None:
            return order
        return sorted(order, key=lambda zone: same_region(self.market, ran, zone))
