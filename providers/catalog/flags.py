"""Why a price is kept in the catalogue without being an offer."""

from __future__ import annotations

from enum import StrEnum

NEAR_ON_DEMAND = 0.95


class Flag(StrEnum):
    """The word in the `flag` column. A flagged row is shown and checked, never offered."""

    PHANTOM = "phantom"
    RETIRED = "retired"
    SPOT_ABOVE = "spot_at_or_above_on_demand"
    SPOT_NEAR = "spot_near_on_demand"
    SPOT_ONLY = "no_on_demand"
    WITHDRAWN = "withdrawn"

    @property
    def reason(self) -> str:
        return _REASONS[self]


_REASONS = {
    Flag.PHANTOM: "priced there, but the hardware is not known to exist in that region",
    Flag.RETIRED: "the cloud has retired this type",
    Flag.SPOT_ABOVE: "spot costs as much as on-demand or more: no real spot market",
    Flag.SPOT_NEAR: f"spot costs {NEAR_ON_DEMAND:.0%} of on-demand or more: usually a sign that none is to be had",
    Flag.SPOT_ONLY: "priced on demand, but sold as spot or by reservation only",
    Flag.WITHDRAWN: "no longer in the newest list of the same publisher",
}


def judge_spot(spot: float, on_demand: float) -> Flag | None:
    """What is wrong about a spot price beside the on-demand price of the same type and region; None if nothing is."""
    if spot >= on_demand:
        return Flag.SPOT_ABOVE
    return Flag.SPOT_NEAR if spot >= NEAR_ON_DEMAND * on_demand else None
