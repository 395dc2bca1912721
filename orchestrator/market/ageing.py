"""Ageing: how far a price may have moved since it was last confirmed.

The logarithm of a price is modelled as a random walk. Its pace follows GPU list prices from 2023 to 2026: spot prices
change four to seven times a year in each region, by 5% in the median and 12 to 22% at the 90th percentile (GCP), and
more in zones of AWS; on-demand prices change rarely but then by much (AWS p5: 98.32 to 55.04 in June 2025).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

YEAR_S = 365.0 * 86_400
SPOT_PACE, ON_DEMAND_PACE = 0.5, 0.25
"""The standard deviation of the logarithm of a price after a year."""
FRESH_S = 86_400.0
"""By default a price counts as fresh for this long: four times the interval of the slowest source."""


def drift(age_s: Floats, fresh_s: Floats | float, spot: Bools) -> Floats:
    """One standard deviation of the natural logarithm of prices of this age; 0 for fresh ones."""
    late_s = np.maximum(age_s - fresh_s, 0.0)
    pace: Floats = np.where(spot, SPOT_PACE, ON_DEMAND_PACE) * np.sqrt(late_s / YEAR_S)
    return pace
