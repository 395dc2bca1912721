"""Static policies: one zone for the whole job, and daily or rule-based choices by price."""

from __future__ import annotations

from orchestrator.arena.baselines.simple import Greedy
from orchestrator.arena.protocol import SPOT, Cloud, Observation, TickJob, TickMarket


class OneZone(Greedy):
    """Spot in one zone or nothing; on-demand at the last safe tick. `zone` None: the cheapest when the job starts."""

    name = "static-at-start"

    def __init__(self, zone: int | None = None) -> None:
        self.zone = zone

    def by_price(self, seen: Observation) -> list[int]:
        """The one zone."""
        if self.zone is None:
            self.zone = super().by_price(seen)[0]
        return [self.zone]


class PaperDaily(Greedy):
    """Narayanan et al. 2020: the cheapest zone, chosen again every 24 hours by price alone, regardless of the cost of
    moving. The paper does not model capacity: zones without it are skipped, and lost machines are replaced at once."""

    name = "paper-daily"

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.decided_h = 0.0

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if seen.running is not None and seen.running[1] == SPOT and seen.elapsed_hours - self.decided_h >= 24:
            self.decided_h = seen.elapsed_hours
            if not self.late(seen, 2.0):
                here = seen.running[0]
                now = self.per_work(seen)
                self.first_spot([zone for zone in self.by_price(seen) if now[zone] < now[here]], cloud)
                return
        super().step(seen, cloud)


class Karpenter(Greedy):
    """Karpenter's balanced consolidation (v1.14): replace a node if the share of cost that it saves is at least half
    the share of work that it disrupts. One job on one node is all of the work, so the price must halve. Its requirement
    of 15 cheaper types for spot-to-spot moves, which GPU machines never meet, is left out."""

    name = "karpenter-balanced"
    least = 0.5

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if seen.running is not None and seen.running[1] == SPOT and not self.late(seen, 2.0):
            here, now = seen.running[0], self.per_work(seen)
            better = [zone for zone in self.by_price(seen) if now[zone] <= (1 - self.least) * now[here]]
            if better:
                self.first_spot(better, cloud)
                return
        super().step(seen, cloud)


class SageMaker(Greedy):
    """SageMaker managed spot: one region, with another zone of it after a preemption (SkyNomad, sec. 5.1). The region
    is that of the cheapest zone at the job's start."""

    name = "sagemaker-zone-switch"

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.zones: list[int] = []
        self.left: int | None = None

    def by_price(self, seen: Observation) -> list[int]:
        """The zones of the region; the zone just lost comes last."""
        order = super().by_price(seen)
        if not self.zones:
            self.zones = [zone for zone in order if same_region(self.market, order[0], zone)]
        if seen.preempted:
            self.left = seen.checkpoint_zone
        return sorted((zone for zone in order if zone in self.zones), key=lambda zone: zone == self.left)


def same_region(market: TickMarket, one: int, other: int) -> bool:
    """Whether moving between two zones is free."""
    return market.egress_usd_per_gb[one][other] == 0
