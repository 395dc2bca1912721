"""SkyPilot 0.14.1's recovery of managed spot jobs. It has no deadline; on-demand at the last safe tick is added here,
because nothing could be compared without it.
"""

from __future__ import annotations

from orchestrator.arena.baselines.simple import Greedy
from orchestrator.arena.baselines.static import same_region
from orchestrator.arena.protocol import Observation


class Failover(Greedy):
    """FAILOVER: first the region of the lost machine, then anywhere; the cheapest zone first in both."""

    name = "skypilot-failover"

    def by_price(self, seen: Observation) -> list[int]:
        """Zones in the order in which spot is tried."""
        order, here = super().by_price(seen), seen.checkpoint_zone
        if here is None:
            return order
        return sorted(order, key=lambda zone: not same_region(self.market, here, zone))


class EagerNextRegion(Greedy):
    """EAGER_NEXT_REGION as documented: the region of the lost machine comes last."""

    name = "skypilot-eager"

    def by_price(self, seen: Observation) -> list[int]:
        """Zones in the order in which spot is tried."""
        order, here = super().by_price(seen), seen.checkpoint_zone
        if here is None:
            return order
        return sorted(order, key=lambda zone: same_region(self.market, here, zone))


class EagerAsShipped(Greedy):
    """EAGER_NEXT_REGION as shipped: without a pinned region nothing is blocked (skypilot#10021), so it is one launch
    without constraints in the cheapest zone with capacity, which may be the one just lost."""

    name = "skypilot-eager-shipped"
