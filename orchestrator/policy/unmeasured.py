"""Where a job begins of whose speed nothing is known: on a machine that may well be best, and is cheap to be wrong on.

Ratios between kinds of hardware are known only so well. Each kind whose best offer has a chance of one in four to beat
the one expected to be best is as good a guess; of those the job takes the one where its first minutes, until it is
measured, cost least. Where the ratios are sure, as in a simulated market, that is the one expected to be best.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orchestrator.model import Objective
from orchestrator.policy.probe import PROBE_MINUTES
from orchestrator.policy.ranking.cost import Forecast

_ONE_IN_FOUR = 0.6745  # standard deviations
_AT_MOST = math.log(4.0)  # kinds that are expected to be further behind than this are not looked at


def beginning(objective: Objective, forecast: Forecast, candidates: NDArray[np.int64]) -> int:
    """The position in the pool where it begins, one of `candidates`, of which there is one at least."""
    pool, mid = forecast.pool, forecast.mid
    cost = np.maximum(mid.cost[candidates], 1.0)
    seconds = np.maximum(mid.seconds[candidates], 1e-3)
    value = objective.cost_weight * np.log(cost) + objective.time_weight * np.log(seconds)
    best = int(value.argmin())
    near = np.flatnonzero(value <= value[best] + _AT_MOST)
    first: dict[int, int] = {}
    kinds = pool.kind[pool.cell[candidates[near]]]
    for kind, index in zip(kinds.tolist(), near.tolist(), strict=True):
        if kind not in first or value[index] < value[first[kind]]:
            first[kind] = index
    codes = list(first)
    listing = pool.market.listing
    posterior = forecast.perf.joint(forecast.demand.job, [listing.kinds[code] for code in codes])
    own = codes.index(int(pool.kind[pool.cell[candidates[best]]]))
    weight = objective.cost_weight + objective.time_weight
    able = [
        int(candidates[index])
        for number, index in enumerate(first.values())
        if value[index] - value[best] <= _ONE_IN_FOUR * weight * posterior.deviation_between(number, own)
    ]
    return min(able, key=lambda at: (stake(forecast, at), at))


def stake(forecast: Forecast, at: int) -> float:
    """nano-USD until a job is measured at a position of the pool: its start and some minutes, the minimum at least."""
    pool, cell = forecast.pool, int(forecast.pool.cell[at])
    billed_s = float(forecast.move_billed_s[cell]) + PROBE_MINUTES * 60
    billed_s = max(billed_s, float(forecast.transition_costs.minimum_s[pool.site[cell]]))
    return float(pool.price_s[at]) * billed_s + float(forecast.move_fixed[cell])
