"""From what is possible to what is best: deadline and budget as promises, then the objective as an order.

An offer keeps a promise *safely* if it does so at the 90th percentile, *possibly* if at the 10th. Offers that keep all
promises safely are ranked by the objective. If none does, the most likely one is taken (a spot machine must also not be
lost), so that on-demand steps in when the slack is used up. A spot machine is safe for a deadline only while there is
time left to lose it and still finish on demand ("safety net" of Can't Be Late, NSDI '24).

Must not know: where the job runs now beyond its row, whether a move pays (gate.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market
from orchestrator.model import Objective
from orchestrator.policy.cost import Z90, Band, Outlook
from orchestrator.policy.demand import Demand
from orchestrator.policy.eligible import NONE, Bar, Bars

Floats = NDArray[np.float64]
Tiers = NDArray[np.int8]

SAFE, POSSIBLE, IMPOSSIBLE = 2, 1, 0

Mode = Literal[
    "safe",  # all promises are kept safely; ranked by the objective
    "likely",  # no offer is safe; ranked by the chance to keep the promises
    "late",  # the deadline of a job that has begun can't be met: earliest finish
    "infeasible",  # no offer can do it, or none may be used
]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """`order`: candidate rows, best first. `bars` now include deadline and budget. `chance` by row in mode "likely"."""

    mode: Mode
    order: NDArray[np.int64]
    bars: Bars
    tiers: Tiers
    chance: Floats | None = None


def rank(demand: Demand, market: Market, outlook: Outlook, screened: Bars, current: int | None) -> Ranking:
    """Order the offers that `screened` lets pass, best first."""
    usable = screened == NONE
    on_time = _on_time(demand, market, outlook, usable, current)
    affordable = _affordable(demand, outlook)
    tiers = np.where(usable, np.minimum(on_time, affordable), IMPOSSIBLE).astype(np.int8)
    best = int(tiers.max(initial=IMPOSSIBLE))
    mode: Mode = "infeasible"
    chance = None
    candidates = usable & (tiers == best)
    keys: tuple[Floats, ...]
    if best == SAFE:
        mode, keys = "safe", objective_keys(demand.job.spec.objective, outlook.cost.mid, outlook.seconds.mid)
    elif best == POSSIBLE:
        mode, chance = "likely", _chance(demand, market, outlook, candidates)
        keys = (-chance, market.spot.astype(np.float64), outlook.cost.mid)
    else:
        candidates = usable & (affordable > IMPOSSIBLE)
        if (demand.started or current is not None) and candidates.any():
            mode = "late"
        else:
            candidates = np.zeros(len(market), np.bool_)
        keys = (outlook.seconds.mid, outlook.cost.mid)
    rows = np.flatnonzero(candidates)
    order = rows[np.lexsort(tuple(key[rows] for key in reversed(keys)))]
    bars = screened.copy()
    out = usable & ~candidates
    bars[out] = Bar.BUDGET if mode == "late" else np.where(affordable < on_time, Bar.BUDGET, Bar.DEADLINE)[out]
    return Ranking(mode, order, bars, tiers, chance)


def objective_keys(objective: Objective, cost: Floats, seconds: Floats) -> tuple[Floats, ...]:
    """Sort keys, smaller is better: the objective itself (`log_value`), then the measure that it weighs less."""
    a, b = objective.cost_weight, objective.time_weight
    main = a * np.log(np.maximum(cost, 1.0)) + b * np.log(np.maximum(seconds, 1e-3))
    return (main, seconds, cost) if a >= b else (main, cost, seconds)


def log_value(objective: Objective, cost: float, seconds: float) -> float:
    """ln(cost^a x time^b); anything below a nano-dollar or a millisecond counts as that."""
    a, b = objective.cost_weight, objective.time_weight
    return a * math.log(max(cost, 1.0)) + b * math.log(max(seconds, 1e-3))


def time_left_s(demand: Demand, market: Market) -> float | None:
    """Seconds until the deadline; None without one or while the amount of work is unknown."""
    deadline_ms = demand.job.deadline_at_ms
    if deadline_ms is None or demand.total_steps is None:
        return None
    return (deadline_ms - market.at) / 1000


def budget_left(demand: Demand) -> int | None:
    """nano-USD that may still be spent; None without a budget."""
    budget = demand.job.spec.budget_nano_usd
    return None if budget is None else budget - demand.spent_nano_usd


def rescue_s(outlook: Outlook, market: Market, usable: NDArray[np.bool_]) -> float | None:
    """Pessimistic time of starting over on the fastest usable on-demand offer; None if there is none."""
    rescuers = (outlook.run_s.high + market.startup_s)[usable & ~market.spot]
    return float(rescuers.min()) if rescuers.size else None


def _on_time(demand: Demand, market: Market, outlook: Outlook, usable: NDArray[np.bool_], current: int | None) -> Tiers:
    left_s = time_left_s(demand, market)
    if left_s is None:
        return np.full(len(market), SAFE, np.int8)
    safe = outlook.seconds.high <= left_s
    rescue = rescue_s(outlook, market, usable)
    if rescue is not None:
        # Room for one more start and for 2 % of the work; twice that for spot machines yet to be taken, so that a job
        # does not go back to spot the moment on-demand has earned a little slack.
        margin = outlook.setback_s + 0.02 * rescue
        need = rescue + outlook.begin_s + 2 * margin
        if current is not None:
            need[current] -= margin[current]
        safe &= ~market.spot | (need <= left_s)
    return _tiers(safe, outlook.seconds.low <= left_s)


def _affordable(demand: Demand, outlook: Outlook) -> Tiers:
    left = budget_left(demand)
    if left is None:
        return np.full(len(outlook.rate), SAFE, np.int8)
    if left <= 0:
        return np.full(len(outlook.rate), IMPOSSIBLE, np.int8)
    if not outlook.known:
        return np.full(len(outlook.rate), SAFE, np.int8)
    return _tiers(outlook.cost.high <= left, outlook.cost.low <= left)


def _tiers(safe: NDArray[np.bool_], possible: NDArray[np.bool_]) -> Tiers:
    return np.where(safe, SAFE, np.where(possible, POSSIBLE, IMPOSSIBLE)).astype(np.int8)


def _chance(demand: Demand, market: Market, outlook: Outlook, candidates: NDArray[np.bool_]) -> Floats:
    """Probability of keeping every promise, for the candidates: log-normal in time and money; under a deadline a spot
    machine must also never be lost, for there is no slack left to lose it in."""
    chance = np.zeros(len(market))
    left_s, left = time_left_s(demand, market), budget_left(demand)
    rows = np.flatnonzero(candidates)
    seconds, cost = _columns(outlook.seconds, rows), _columns(outlook.cost, rows)
    for row, time, money in zip(rows.tolist(), seconds, cost, strict=True):
        p = 1.0
        if left_s is not None:
            p *= _below(left_s, *time) * math.exp(-outlook.losses[row])
        if left is not None and outlook.known:
            p *= _below(float(left), *money)
        chance[row] = p
    return chance


def _columns(band: Band, rows: NDArray[np.int64]) -> zip[tuple[float, float, float]]:
    return zip(band.low[rows].tolist(), band.mid[rows].tolist(), band.high[rows].tolist(), strict=True)


def _below(limit: float, low: float, mid: float, high: float) -> float:
    """P(X <= limit) of a log-normal X with this median and 10th to 90th percentile."""
    if limit <= 0 or mid <= 0:
        return float(limit >= mid)
    sigma = max(math.log(max(high, mid) / max(low, 1e-9)) / (2 * Z90), 1e-6)
    return 0.5 * (1 + math.erf(math.log(limit / mid) / (sigma * math.sqrt(2))))
