"""Interruption: how often a cloud says that it takes spot machines back, and what hazard that may mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

OPEN_END_PERCENT = 50.0
"""Where a bucket has no upper end (AWS ">20%"). An assumption of ours."""
EXPOSURE_H = 24.0
"""How long the machines behind a share lived on average. An assumption of ours: AWS does not say."""
MONTH_H = 730.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """Of the machines of a type in a region, `low`..`high` (shares of 1) were taken back within a month.

    `high` is None where the cloud names no upper end. `at_ms` is when that was true, `source` who says so.
    """

    low: float
    high: float | None
    at_ms: int
    source: str

    def hazard_per_hour(self, exposure_h: float = EXPOSURE_H) -> float:
        """Losses per hour of running: -ln(1 - p) / exposure, p the middle of the bucket.

        A prior, to be replaced by what was seen: the share counts machines, not hours, and nothing public says for how
        many hours they ran. Were it a whole month (730 h, `MONTH_H`), the hazard would be 30 times smaller; public
        traces of single zones show up to 10 times more.
        """
        return hazard(self._middle, exposure_h)

    def hazard_bounds(self) -> tuple[float, float]:
        """The least and the most that the bucket can mean: its low end over a month, its high end over 2 hours."""
        return hazard(self.low, MONTH_H), hazard(self._high, 2.0)

    @property
    def _high(self) -> float:
        return OPEN_END_PERCENT / 100 if self.high is None else self.high

    @property
    def _middle(self) -> float:
        return (self.low + self._high) / 2


def hazard(share: float, exposure_h: float) -> float:
    """The constant hazard per hour at which a share of machines is lost within `exposure_h`. Raises ValueError."""
    if not 0 <= share < 1 or not exposure_h > 0:
        raise ValueError(f"no hazard follows from a share of {share} in {exposure_h} h")
    return -math.log1p(-share) / exposure_h
