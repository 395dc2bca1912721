"""Why a price is in the catalogue without being an offer."""

from __future__ import annotations

from enum import StrEnum

NEAR_ON_DEMAND = 0.95


class Flag(StrEnum):
    """A value of the `flag` column. A flagged row is shown and checked, but never offered."""

    PHANTOM = "phantom"
    RETIRED = "retired"
    SPOT_ABOVE = "spot_at_or_above_on_demand"
    SPOT_NEAR = "spot_near_on_demand"
    SPOT_ONLY = "no_on_demand"
    WITHDRAWN = "withdrawn"

    @property
    def reason(self) -> str:
        """The reason in words."""
        return _REASONS[self]


_REASONS = {
    Flag.PHANTOM: "has a price, but the hardware is not known to exist in that region",
    Flag.RETIRED: "the cloud has retired this type",
    Flag.SPOT_ABOVE: "spot costs as much as on-demand or more: there is no spot market",
    Flag.SPOT_NEAR: f"spot costs {NEAR_ON_DEMAND:.0%} of on-demand or more: usually a sign that there is no capacity",
    Flag.SPOT_ONLY: "has an on-demand price, but is sold only as spot or by reservation",
    Flag.WITHDRAWN: "no longer in the publisher's newest list",
}


def judge_spot(spot: float, on_demand: float) -> Flag | None:
    """The flag for a spot price, given the on-demand price of the same type and region (same unit); None if it is
    plausible.
    """
    if spot >= on_demand:
        return Flag.SPOT_ABOVE
    return Flag.SPOT_NEAR if spot >= NEAR_ON_DEMAND * on_demand else None
