"""Uniform Progress (Wu et al., Can't Be Late, NSDI '24): keep progress at least at the elapsed share of the deadline.
In one zone, extended to several zones by Tradewind, and to several regions by SkyNomad.

Behind: on-demand if there is no spot; ahead: wait for spot. Back from on-demand to spot only when two overheads ahead
(hysteresis). The safety net rents on-demand when only that still fits before the deadline.
"""

from __future__ import annotations

from orchestrator.arena.baselines.simple import Baseline, Latched
from orchestrator.arena.baselines.static import same_region
from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_EPS = 1e-9


class UniformProgress(Baseline):
    """Extended to several zones: spot is the cheapest zone with capacity."""

    name = "uniform-progress"

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
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
        """Zones in the order in which spot is tried."""
        return self.by_price(seen)


class UniformProgressHere(UniformProgress):
    """The paper's own setting: one zone, the cheapest at the job's start."""

    name = "uniform-progress-1z"
    zone: int | None = None

    def order(self, seen: Observation) -> list[int]:
        """The one zone."""
        if self.zone is None:
            self.zone = self.by_price(seen)[0]
        return [self.zone]


class UniformProgressMulti(Latched):
    """SkyNomad's baseline (NSDI '27; "eager failover" in its artifact): spot by price, with the region in which the job
    ran last after all others. Two overheads ahead it leaves on-demand even if there is no spot, and waits."""

    name = "uniform-progress-multi"

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.ran: int | None = None  # where it was last seen running; a machine lost in its first tick was never seen

    def choose(self, seen: Observation, cloud: Cloud) -> None:
        """See Latched.choose."""
        kind = None
        if seen.running is not None:
            self.ran, kind = seen.running
        if kind == SPOT:
            return
        margin = 2 * self.job.restart_overhead_hours
        rate = self.job.work_hours / self.job.deadline_hours
        if kind == ON_DEMAND:
            ahead = seen.done_hours >= (seen.elapsed_hours + margin) * rate - _EPS
            if ahead and not self.first_spot(self._order(seen), cloud):
                cloud.terminate()
            return
        scarce = self.ticks_needed(seen, margin) > seen.ticks_left
        if not scarce and self.first_spot(self._order(seen), cloud):
            return
        if scarce or seen.done_hours < seen.elapsed_hours * rate - _EPS:
            self.buy_here(seen, cloud, 0 if seen.checkpoint_zone is None else seen.checkpoint_zone)

    def _order(self, seen: Observation) -> list[int]:
        order, ran = self.by_price(seen), self.ran
        if ran is None:
            return order
        return sorted(order, key=lambda zone: same_region(self.market, ran, zone))
