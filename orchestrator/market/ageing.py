"""Ageing: how far a price may have moved since it was last seen in force.

The logarithm of a price is taken for a random walk. Its pace is that of GPU list prices of 2023 to 2026: spot steps
four to seven times a year in each region, by 5% in the median and 12 to 22% at the 90th percentile (GCP), and zones of
AWS by more; on-demand changes rarely, and then by much (AWS p5: 98.32 to 55.04 in June 2025).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

YEAR_S = 365.0 * 86_400
SPOT_PACE, ON_DEMAND_PACE = 0.5, 0.25
"""Standard deviation of the logarithm of a price after a year."""
FRESH_S = 86_400.0
"""A price counts as it is for so long where nobody says otherwise: four times the interval of the slowest source."""


def drift(age_s: Floats, fresh_s: Floats | float, spot: Bools) -> Floats:
    """One standard deviation of the natural logarithm of prices that old; 0 for those that are fresh."""
    late_s = np.maximum(age_s - fresh_s, 0.0)
    pace: Floats = np.where(spot, SPOT_PACE, ON_DEMAND_PACE) * np.sqrt(late_s / YEAR_S)
    return pace
