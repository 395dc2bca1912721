"""Objectives: ranks the usable offers: deadline and budget first, as limits, then the objective as an order.

An offer keeps a limit *safely* if it does so at the 95th percentile, *possibly* if at the 5th. Offers that keep all
limits safely are ranked by the objective. If there is none, the most likely one is taken (for which a spot machine must
also not be lost), so that on-demand takes over when the slack is used up. A spot machine is safe for a deadline only
while there is time to lose it and still finish on demand ("safety net" of Can't Be Late, NSDI '24).

Columns are over the pool of the forecast. Only the head of the order is sorted: the best, and everything ahead of where
the job is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.model import CHEAPEST, Objective
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import TIME_TOLERANCE, Demand
from orchestrator.policy.ranking.chance import chances
from orchestrator.policy.ranking.cost import Forecast, Pool, forecast_of
from orchestrator.policy.ranking.eligible import NONE, SHUT_FOR_A_WHILE, Filtered, RejectionReason, RejectionReasons
from orchestrator.policy.ranking.transition_costs import LINK_BYTES_PER_S, egress_from_sites
from orchestrator.policy.unmeasured import starting_position

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Tiers = NDArray[np.int8]

SAFE, POSSIBLE, IMPOSSIBLE = 2, 1, 0
KEPT_BACK = 0.02  # the share of the work's time that is kept back before a deadline
HEAD = 64  # at least this many of the best are sorted

Mode = Literal[
    "safe",  # all limits are kept safely; ranked by the objective
    "likely",  # no offer is safe; ranked by the chance to keep the limits
    "late",  # the deadline cannot be met: earliest finish within the budget
    "infeasible",  # no offer can keep the budget, or none may be used
]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """`order`: the best candidate rows, best first. If there are more than HEAD candidates, it leaves out the rest,
    except those ahead of where the job is and the best one at another site. `rejection_reasons` of every row now
    include deadline and budget, and `counts` has the number of rows for each. `tiers`, `keys` (by which candidates were
    sorted) and, in mode "likely", `chance` are over `pool`."""

    mode: Mode
    order: NDArray[np.int64]
    rejection_reasons: RejectionReasons
    pool: Pool
    tiers: Tiers
    counts: dict[RejectionReason, int]
    keys: tuple[Floats, ...]
    chance: Floats | None = None

    def tier(self, row: int) -> int:
        """How a row of the pool keeps the limits: SAFE, POSSIBLE or IMPOSSIBLE."""
        return int(self.tiers[self.pool.at(row)])

    def near_earliest(self, row: int, tolerance: float = TIME_TOLERANCE) -> bool:
        """Whether a row of the pool finishes within `tolerance` (at least TIME_TOLERANCE) of the earliest candidate.
        Only for `fastest` in mode "safe"."""
        earliest = self.keys[0].item(self.pool.at(int(self.order[0])))
        return self.keys[0].item(self.pool.at(row)) <= earliest * (1 + tolerance)

    def odds(self, row: int) -> float:
        """The probability (0 to 1) that a row of the pool keeps the limits. Only in mode "likely"."""
        assert self.chance is not None
        return float(self.chance[self.pool.at(row)])


def rank(demand: Demand, forecast: Forecast, filtered: Filtered) -> Ranking:
    """Rank the offers that passed the filter, best first."""
    pool, usable, current = filtered.pool, filtered.usable, filtered.current
    if budget_left(demand) is None and time_left_s(demand, forecast) is None and filtered.usable_at.size:
        keys = _objective(demand, forecast, filtered.usable_at)
        order = _head(filtered.usable_at, keys, pool, current)
        return Ranking(
            "safe", pool.rows[order], filtered.rejection_reasons, pool, filtered.unbound, filtered.counts, keys
        )
    affordable = _affordable(demand, forecast)
    on_time = _on_time(demand, forecast, usable & (affordable == SAFE))
    tiers = np.where(usable, np.minimum(on_time, affordable), np.int8(IMPOSSIBLE))
    best = int(tiers.max(initial=IMPOSSIBLE))
    mode: Mode = "infeasible"
    chance = None
    candidates = usable & (tiers == best)
    if best == SAFE:
        mode, keys = "safe", _objective(demand, forecast, np.flatnonzero(candidates))
    elif best == POSSIBLE:
        mode = "likely"
        chance, keys = chances(forecast, candidates, time_left_s(demand, forecast), budget_left(demand))
    else:
        candidates = usable & (affordable > IMPOSSIBLE)
        mode = "late" if candidates.any() else "infeasible"
        keys = _earliest(np.flatnonzero(candidates), forecast)
    order = _head(np.flatnonzero(candidates), keys, pool, current)
    out = usable & ~candidates
    rejection_reasons, counts = filtered.rejection_reasons, filtered.counts
    if out.any():
        rejection_reasons = rejection_reasons.copy()
        why = (
            RejectionReason.BUDGET
            if mode in ("late", "infeasible")
            else np.where(affordable < on_time, RejectionReason.BUDGET, RejectionReason.DEADLINE)[out]
        )
        rejection_reasons[pool.rows[out]] = why
        added = {
            rejection_reason: int(np.count_nonzero(why == rejection_reason))
            for rejection_reason in (RejectionReason.DEADLINE, RejectionReason.BUDGET)
        }
        only_budget = mode in ("late", "infeasible")
        counts = counts | ({RejectionReason.BUDGET: int(np.count_nonzero(out))} if only_budget else added)
    return Ranking(mode, pool.rows[order], rejection_reasons, pool, tiers, counts, keys, chance)


def _objective(demand: Demand, forecast: Forecast, candidates: NDArray[np.int64]) -> tuple[Floats, ...]:
    """The keys of the objective; `fastest` counts candidates near the earliest as equally early, so that their cost
    decides. A job of unknown speed has its starting offer ahead of all others."""
    objective = demand.job.spec.objective
    keys = objective_keys(objective, forecast.mid.cost, forecast.mid.seconds)
    if objective.cost_weight == 0 and candidates.size:
        keys = _earliest(candidates, forecast)
    if forecast.speed_known or forecast.pool.current is not None:
        return keys
    main = keys[0].copy()
    main[starting_position(objective, forecast, candidates)] = -np.inf
    return (main, *keys[1:])


def _earliest(candidates: NDArray[np.int64], forecast: Forecast) -> tuple[Floats, ...]:
    """The keys of the earliest finish; the cost decides among candidates that finish within the tolerance of it."""
    seconds, cost = np.maximum(forecast.mid.seconds, 1e-3), np.maximum(forecast.mid.cost, 1.0)
    earliest = seconds[candidates].min(initial=np.inf)
    return np.where(seconds <= earliest * (1 + TIME_TOLERANCE), earliest, seconds), cost, seconds


def standing(ranking: Ranking, filtered: Filtered) -> tuple[NDArray[np.int64], list[tuple[float, ...]]]:
    """(positions of all usable rows, best first and those that miss a limit last; what each was ranked by). The
    tolerance of `fastest` counts from the earliest finish in this market."""
    columns = (-ranking.tiers.astype(np.float64), *ranking.keys)
    positions = np.flatnonzero(filtered.usable)
    positions = positions[np.lexsort(tuple(column[positions] for column in reversed(columns)))]
    return positions, list(zip(*(column[positions].tolist() for column in columns), strict=True))


def _head(
    candidates: NDArray[np.int64], keys: tuple[Floats, ...], pool: Pool, current: int | None
) -> NDArray[np.int64]:
    """The first of the candidates (positions in the pool), in order."""
    main = keys[0][candidates]
    ahead = candidates
    if len(candidates) > 2 * HEAD:
        limit = float(np.partition(main, HEAD)[HEAD])
        if current is not None:
            limit = max(limit, float(keys[0][pool.at(current)]))
        ahead = candidates[main <= limit]
    order = ahead[np.lexsort(tuple(key[ahead] for key in reversed(keys)))]
    if len(order) == len(candidates):
        return order
    if current is None:
        order = order[:HEAD]
    site = pool.site[pool.cell[order]]
    if not (site == site[0]).all():
        return order
    elsewhere = candidates[pool.site[pool.cell[candidates]] != site[0]]
    if elsewhere.size:
        nearest = elsewhere[keys[0][elsewhere] == keys[0][elsewhere].min()]
        order = np.append(order, nearest[np.lexsort(tuple(key[nearest] for key in reversed(keys)))[0]])
    return order


def objective_keys(objective: Objective, cost: Floats, seconds: Floats) -> tuple[Floats, ...]:
    """Sort keys, smaller is better: the objective itself (`log_value`), then the measure that it weighs less.

    Where a logarithm would not change the order, none is taken.
    """
    a, b = objective.cost_weight, objective.time_weight
    cost, seconds = np.maximum(cost, 1.0), np.maximum(seconds, 1e-3)
    if b == 0:
        return (cost, seconds)
    if a == 0:
        return (seconds, cost)
    main = a * np.log(cost) + b * np.log(seconds)
    return (main, seconds, cost) if a >= b else (main, cost, seconds)


def log_value(objective: Objective, cost: float, seconds: float) -> float:
    """ln(cost^a x time^b); cost in nano-USD, at least 1; time in seconds, at least 0.001."""
    a, b = objective.cost_weight, objective.time_weight
    return a * math.log(max(cost, 1.0)) + b * math.log(max(seconds, 1e-3))


def reasons_to_go(
    objective: Objective, ranking: Ranking, row: int, tolerance: float = TIME_TOLERANCE
) -> tuple[Objective, ...]:
    """The objectives of which any justifies leaving another offer for `row`: the job's own; for `fastest` also the cost
    if the finish there is within `tolerance` of the earliest. Elsewhere it never goes to save money."""
    if objective.cost_weight == 0 and ranking.mode == "safe" and ranking.near_earliest(row, tolerance):
        return (objective, CHEAPEST)
    return (objective,)


def time_left_s(demand: Demand, forecast: Forecast) -> float | None:
    """Market seconds until the deadline; None without one or if the job's duration is not known."""
    deadline_ms = demand.job.deadline_at_ms
    if deadline_ms is None or not forecast.known:
        return None
    return (deadline_ms - forecast.pool.market.at) / 1000


def budget_left(demand: Demand) -> int | None:
    """nano-USD left of the budget; None without one."""
    budget = demand.job.spec.budget_nano_usd
    return None if budget is None else budget - demand.spent_nano_usd


def rescue_s(forecast: Forecast, usable: Bools) -> float | None:
    """Pessimistic market seconds to get the checkpoint to the fastest usable on-demand offer, restart and finish there;
    None without one."""
    pool = forecast.pool
    restart_s = forecast.high.run_s + pool.start_high_s + forecast.way_s
    rescuers = restart_s[pool.cell[usable & ~pool.spot]]
    return float(rescuers.min()) if rescuers.size else None


def rescue_there_s(forecast: Forecast, usable: Bools) -> Floats | None:
    """The same over the cells, if the job goes there first: its checkpoint then lies in that region. A budget must pay
    for its way back, too. None without a usable on-demand offer; infinite where none is in reach."""
    pool = forecast.pool
    bought = np.flatnonzero(usable & ~pool.spot)
    if not bought.size:
        return None
    cell, region = pool.cell[bought], pool.market.listing.site_region[pool.site]
    gap_s = 0.0 if pool.here is None else forecast.demand.gap_s
    restart_s = (forecast.high.run_s + pool.start_high_s)[cell] + gap_s
    near_s = np.full(int(region.max()) + 1, np.inf)
    np.minimum.at(near_s, region[cell], restart_s)
    transfer_s = forecast.demand.checkpoint_bytes / LINK_BYTES_PER_S
    far_s = restart_s[_pays_for_the_way_back(forecast, bought)].min(initial=np.inf) + transfer_s
    rescue: Floats = np.minimum(near_s, far_s)[region]
    return rescue


def _pays_for_the_way_back(forecast: Forecast, bought: NDArray[np.int64]) -> Bools:
    """Whether the budget pays for each of some positions of the pool and for the checkpoint's way there, from the place
    of all from where that costs most."""
    left, size, market = budget_left(forecast.demand), forecast.demand.checkpoint_bytes, forecast.pool.market
    if left is None or not size:
        return np.ones(len(bought), np.bool_)
    place = [market.place(row) for row in forecast.pool.rows[bought].tolist()]
    way = {each: egress_from_sites(market, each, size).max() for each in set(place)}
    paid: Bools = forecast.high.cost[bought] + np.array([way[each] for each in place]) <= left
    return paid


def lacks_money(demand: Demand, perf: PerfBook, filtered: Filtered) -> bool:
    """Whether the rest of the budget pays for no offer (at the 5th percentile of its cost), be it open now or shut for
    a while, so that waiting cannot help."""
    if budget_left(demand) is None or not filtered.usable_at.size:
        return False
    reasons, market = filtered.rejection_reasons, filtered.market
    open_or_shut = np.isin(reasons, np.array([NONE, *SHUT_FOR_A_WHILE], np.int8)) & market.priced
    forecast = forecast_of(demand, Pool(market, np.flatnonzero(open_or_shut), setup_s=filtered.setup_s), perf, None)
    return bool((_affordable(demand, forecast) == IMPOSSIBLE).all())


def latest_start_s(demand: Demand, forecast: Forecast, filtered: Filtered) -> float | None:
    """For how many more market seconds a job may run nowhere, and still keep its deadline on demand with a margin; None
    without a deadline. Negative if it may not wait at all."""
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return None
    rescue = rescue_s(forecast, filtered.usable & (_affordable(demand, forecast) == SAFE))
    if rescue is None:
        return -1.0
    return left_s - rescue - 2 * margin_s(float(forecast.setback_s.max(initial=0.0)), rescue)


def margin_s(setback_s: float, work_s: float) -> float:
    """Market seconds that are kept back before a deadline: for one more start and 2 % of the work."""
    return setback_s + KEPT_BACK * work_s


def _on_time(demand: Demand, forecast: Forecast, usable: Bools) -> Tiers:
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return np.full(len(usable), SAFE, np.int8)
    pool, possible = forecast.pool, forecast.low.seconds <= left_s
    safe = forecast.high.seconds <= left_s
    rescued = _rescued(forecast, usable, left_s)
    if rescued is not None:
        # Where the speed is not known, it soon is, and on-demand can still be bought then: until then the expected one
        # counts, and what is possible where the job is already.
        hoped = forecast.mid.seconds <= left_s
        if pool.current is not None:
            hoped |= possible & (pool.rows == pool.current)
        safe = np.where(pool.spot, safe & rescued, safe) | (hoped & rescued & forecast.measurable)
    return _tiers(safe, possible)


def _rescued(forecast: Forecast, usable: Bools, left_s: float) -> Bools | None:
    """Over the rows: whether a usable on-demand offer could still take over in time if the machine there is lost; None
    without such an offer."""
    rescue = rescue_there_s(forecast, usable)
    if rescue is None:
        return None
    # Room for one more start and for 2 % of the work; twice that before a new spot machine is taken, so that a job
    # does not go back to spot as soon as on-demand has gained a little slack. Aborting a move away from spot
    # needs as much, so that the move is not started again at once.
    margins = np.full(len(rescue), 2.0)
    if forecast.pool.here is not None and forecast.move is None:
        margins[forecast.pool.here] = 1.0
    need = rescue + forecast.begin_s + margins * (forecast.setback_s + KEPT_BACK * rescue)
    return forecast.over_rows(need) <= left_s


def _affordable(demand: Demand, forecast: Forecast) -> Tiers:
    left, size = budget_left(demand), len(forecast.pool.rows)
    if left is None:
        return np.full(size, SAFE, np.int8)
    if left <= 0:
        return np.full(size, IMPOSSIBLE, np.int8)
    if not forecast.known:  # only getting there has a known cost, above all the egress of the checkpoint
        return np.where(forecast.over_rows(forecast.move_fixed) <= left, SAFE, IMPOSSIBLE).astype(np.int8)
    return _tiers(forecast.high.cost <= left, forecast.low.cost <= left)


def _tiers(safe: Bools, possible: Bools) -> Tiers:
    return np.where(safe, SAFE, np.where(possible, POSSIBLE, IMPOSSIBLE)).astype(np.int8)
