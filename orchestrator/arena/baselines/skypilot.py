"""SkyPilot 0.14.1's recovery of managed spot jobs. It knows no deadline: on-demand at the last safe tick is ours, else
nothing could be compared.
"""

from __future__ import annotations

from orchestrator.arena.baselines.simple import Greedy
from orchestrator.arena.baselines.static import same_region
from orchestrator.arena.protocol import Observation


class Failover(Greedy):
    """FAILOVER: the region that it was lost in first, cheapest zone first; then anywhere, cheapest first."""

    name = "skypilot-failover"

    def by_price(self, seen: Observation) -> list[int]:
        order, here = super().by_price(seen), seen.checkpoint_zone
        if here is None:
            return order
        return sorted(order, key=lambda zone: not same_region(self.market, here, zone))


class EagerNextRegion(Greedy):
    """EAGER_NEXT_REGION as documented: the region that it was lost in comes last."""

    name = "skypilot-eager"

    def by_price(self, seen: Observation) -> list[int]:
        order, here = super().by_price(seen), seen.checkpoint_zone
        if here is None:
            return order
        return sorted(order, key=lambda zone: same_region(self.market, here, zone))


class EagerAsShipped(Greedy):
    """EAGER_NEXT_REGION as shipped: with no region pinned nothing is blocked (skypilot#10021), so it is one launch
    without constraints, the cheapest zone that has capacity, which may be the one that was just lost."""

    name = "skypilot-eager-shipped"
