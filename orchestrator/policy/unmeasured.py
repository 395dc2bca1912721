"""Unmeasured: chooses where a job of unknown speed starts: on an offer that could be the best and costs little to try.

Speed ratios between kinds of hardware are uncertain. A kind counts as a candidate if its best offer beats the expected
best with a probability of at least one in four. Among the candidates, the job starts where the first minutes, until it
is measured, cost least. If the ratios are exact, as in a simulated market, that is the expected best.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orchestrator.model import Objective
from orchestrator.policy.demand import TIME_TOLERANCE
from orchestrator.policy.probe import PROBE_MINUTES
from orchestrator.policy.ranking.cost import Forecast

_ONE_IN_FOUR = 0.6745  # standard deviations; a normal variable exceeds it with a probability of one in four
_AT_MOST = math.log(4.0)  # log factor: kinds that are expected to be worse by more are ignored


def starting_position(objective: Objective, forecast: Forecast, candidates: NDArray[np.int64]) -> int:
    """The position in the pool where the job starts: one of `candidates`, which must not be empty."""
    pool, mid = forecast.pool, forecast.mid
    cost = np.maximum(mid.cost[candidates], 1.0)
    seconds = np.maximum(mid.seconds[candidates], 1e-3)
    value = objective.cost_weight * np.log(cost) + objective.time_weight * np.log(seconds)
    best = int(value.argmin())
    near = np.flatnonzero(value <= value[best] + _AT_MOST)
    order, tolerance = value, 0.0
    if objective.cost_weight == 0:  # of the offers of a kind that finish about equally early, take the cheapest
        kinds = pool.kind[pool.cell[candidates[near]]]
        earliest = np.full(int(kinds.max()) + 1, np.inf)
        np.minimum.at(earliest, kinds, value[near])
        order, tolerance = cost, objective.time_weight * math.log(1 + TIME_TOLERANCE)
        near = near[value[near] <= earliest[kinds] + tolerance]
    first: dict[int, int] = {}
    kinds = pool.kind[pool.cell[candidates[near]]]
    for kind, index in zip(kinds.tolist(), near.tolist(), strict=True):
        if kind not in first or order[index] < order[first[kind]]:
            first[kind] = index
    codes = list(first)
    listing = pool.market.listing
    posterior = forecast.perf.joint(forecast.demand.job, [listing.kinds[code] for code in codes])
    own = codes.index(int(pool.kind[pool.cell[candidates[best]]]))
    weight = objective.cost_weight + objective.time_weight
    able = [
        int(candidates[index])
        for number, index in enumerate(first.values())
        if number == own
        or value[index] - value[best] - tolerance <= _ONE_IN_FOUR * weight * posterior.deviation_between(number, own)
    ]
    return min(able, key=lambda at: (cost_until_measured(forecast, at), at))


def cost_until_measured(forecast: Forecast, at: int) -> float:
    """nano-USD until the job is measured at a position of the pool: for its start and PROBE_MINUTES, or the minimum
    billed time if that is longer."""
    pool, cell = forecast.pool, int(forecast.pool.cell[at])
    billed_s = float(forecast.move_billed_s[cell]) + PROBE_MINUTES * 60
    billed_s = max(billed_s, float(forecast.transition_costs.minimum_s[pool.site[cell]]))
    return float(pool.price_s[at]) * billed_s + float(forecast.move_fixed[cell])
