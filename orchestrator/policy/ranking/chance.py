"""Chance: the probability that a job keeps its limits on each offer, where no offer keeps them for certain.

Time and money are log-normal. Under a deadline a spot machine must also never be lost, because no slack is left for
that, with one exception: if the job's speed is unknown, it can be measured on a spot machine first, and on-demand be
bought as soon as the speed is known. Where that is nearly as safe as on-demand at once, the cheapest such machine is
best.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.probe import LONGEST_PROBE_S
from orchestrator.policy.ranking.cost import Z95, Forecast
from orchestrator.policy.ranking.pool import Floats

Bools = NDArray[np.bool_]

SURER = 0.05
"""By how much another offer's probability must be higher before a job at risk goes there instead."""


def chances(
    forecast: Forecast, candidates: Bools, left_s: float | None, left_nano_usd: int | None
) -> tuple[Floats, Floats]:
    """(the probability of keeping every limit, the main key by which to sort; on-demand and the cost decide between
    equals), for the candidates (0 for all other rows)."""
    rows = np.flatnonzero(candidates)
    low, mid, high = forecast.low, forecast.mid, forecast.high
    p, first = np.ones(len(rows)), np.zeros(len(rows))
    if left_s is not None:
        first = _measured_first(forecast, rows, left_s)
        alone = _below(left_s, low.seconds[rows], mid.seconds[rows], high.seconds[rows])
        p *= np.maximum(alone * np.exp(-forecast.over_rows(mid.losses)[rows]), first)
    if left_nano_usd is not None and forecast.known:
        p *= _below(float(left_nano_usd), low.cost[rows], mid.cost[rows], high.cost[rows])
    chance, falling = np.zeros(len(candidates)), np.zeros(len(candidates))
    chance[rows] = p
    best = p.max()
    falling[rows] = np.where((first > 0) & (p >= best - SURER), -1 - best, -p)
    return chance, falling


def _measured_first(forecast: Forecast, rows: NDArray[np.int64], left_s: float) -> Floats:
    """The probability of meeting the deadline on demand after the job was measured on each spot row; 0 where it was
    already. Until then the machine may be lost once."""
    pool, low, mid, high = forecast.pool, forecast.low, forecast.mid, forecast.high
    bought = rows[~pool.spot[rows]]
    found = np.zeros(len(rows))
    for index in np.flatnonzero((pool.spot & forecast.measurable)[rows]).tolist() if bought.size else ():
        cell = pool.cell[rows[index]]
        rest_s = left_s - float(forecast.begin_s[cell] + forecast.setback_s[cell]) - LONGEST_PROBE_S
        found[index] = _below(rest_s, low.seconds[bought], mid.seconds[bought], high.seconds[bought]).max()
    return found


def _below(limit: float, low: Floats, mid: Floats, high: Floats) -> Floats:
    """P(X <= limit) of an X with this median and 5th to 95th percentile, log-normal on either side of the median.

    Only the side of the limit counts: machine start-up contributes most to the 5th percentile and must not make another
    machine look more certain.
    """
    if limit <= 0:
        return np.zeros(len(mid))
    safe_mid = np.maximum(mid, 1e-9)
    least = np.minimum(np.maximum(low, 1e-9), safe_mid)
    half = np.where(limit >= safe_mid, np.maximum(high, safe_mid) / safe_mid, safe_mid / least)
    sigma = np.maximum(np.log(half) / Z95, 1e-6)
    return np.where(mid <= 0, 1.0, normal_cdf(np.log(limit / safe_mid) / sigma))


def normal_cdf(z: Floats) -> Floats:
    """Distribution function of the standard normal to 1.5e-7 (Abramowitz and Stegun 7.1.26); numpy has no erf."""
    x = np.abs(z) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = poly * np.exp(-x * x) / 2
    return np.where(z >= 0, 1 - tail, tail)
