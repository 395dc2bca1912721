"""Uniform Progress (Wu et al., Can't Be Late, NSDI '24): keep progress at least as far as the share of time gone.

Behind: on-demand if no spot can be had; ahead: wait for spot. From on-demand back to spot only when two overheads
ahead (hysteresis). The safety net buys on demand when no more than that fits before the deadline.

Must not know: the future.
"""

from __future__ import annotations

from orchestrator.sim.arena.baselines.simple import Baseline
from orchestrator.sim.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation


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
