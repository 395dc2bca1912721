"""Interruption: how often a cloud says it preempts spot machines, and the hazard that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

OPEN_END_PERCENT = 50.0
"""Used where a range has no upper end (AWS ">20%"). Our assumption."""
EXPOSURE_H = 24.0
"""How long the machines behind a share ran on average, in hours. Our assumption: AWS does not say."""
MONTH_H = 730.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """Of the machines of a type in a region, `low`..`high` (fractions of 1) were preempted within a month.

    `high` is None if the cloud gives no upper end. `at_ms` (epoch ms) is the time of the figure, `source` its
    publisher.
    """

    low: float
    high: float | None
    at_ms: int
    source: str

    def hazard_per_hour(self, exposure_h: float = EXPOSURE_H) -> float:
        """Preemptions per hour of running: -ln(1 - p) / exposure, where p is the middle of the range.

        A prior, to be replaced by observations: the share counts machines, not hours, and no public source says how
        long they ran. If they ran a whole month (730 h, `MONTH_H`), the hazard would be 30 times smaller; public traces
        of single zones show up to 10 times more.
        """
        return hazard(self._middle, exposure_h)

    def hazard_bounds(self) -> tuple[float, float]:
        """The lowest and the highest hazard per hour that the range can mean: its low end over a month, its high end
        over 2 hours.
        """
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
        raise ValueError(f"a share of {share} in {exposure_h} h gives no hazard")
    return -math.log1p(-share) / exposure_h
