"""Order: ranks the usable offers. Deadline and budget come first, as limits; the objective then orders the offers.

Offers that meet all limits safely (limits.py) are ranked by the objective. If no offer does, the one most likely to
meet them comes first. Its probability accounts for the loss of a spot machine (chance.py), so on-demand takes over when
the slack is used up.

The objective uses the cost and the time that are shown to the user (outlook.py). Columns are over the pool of the
forecast. Only the head of the order is sorted: the best offers, and everything ahead of the job's present offer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.model import CHEAPEST, Objective
from orchestrator.policy.demand import TIME_TOLERANCE, Demand
from orchestrator.policy.ranking.baseline import baseline
from orchestrator.policy.ranking.chance import Chances, chances
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered, RejectionReason, RejectionReasons
from orchestrator.policy.ranking.limits import (
    IMPOSSIBLE,
    POSSIBLE,
    SAFE,
    Limits,
    Tiers,
    affordable,
    budget_left,
    kept_limits,
    on_time,
    time_left_s,
)
from orchestrator.policy.ranking.objectives import objective_keys, tolerant_keys
from orchestrator.policy.ranking.outlook import Keys, KeysOf, Outlook
from orchestrator.policy.ranking.pool import Floats, Pool, Rows
from orchestrator.policy.unmeasured import starting_position

BEST = 8  # at least this many of the best are put in order

Mode = Literal[
    "safe",  # all limits are met safely; ranked by the objective
    "likely",  # no offer is safe; ranked by the chance to meet the limits
    "late",  # the deadline cannot be met: earliest finish within the budget, safely if possible
    "infeasible",  # no offer can meet the budget, or none may be used
]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The result of `rank`.

    - `order`: the best candidate rows, best first. If there are many, it has only the head, everything ahead of the
      job's present row, and the best row at another site.
    - `rejection_reasons`: those of every row, now including deadline and budget; `counts` has the number of rows for
      each.
    - `tiers` and, in mode "likely", `chances`: over `pool`.
    - `instead`: the row that a user would choose without Tradewind (baseline.py).
    - `keys_of`: the keys by which candidates were sorted.
    - `earliest_s`: the earliest finish, if that is the first of the keys.
    """

    mode: Mode
    order: NDArray[np.int64]
    rejection_reasons: RejectionReasons
    pool: Pool
    tiers: Tiers
    counts: dict[RejectionReason, int]
    outlook: Outlook
    instead: int | None
    keys_of: KeysOf
    earliest_s: float = 0.0
    chances: Chances | None = None

    def tier(self, row: int) -> int:
        """How safely a row of the pool meets the limits: SAFE, POSSIBLE or IMPOSSIBLE."""
        return int(self.tiers[self.pool.at(row)])

    def cost(self, row: int) -> float:
        """The expected nano-USD to finish on a row of the pool, as shown to the user."""
        return self.outlook.of(row)[0]

    def seconds(self, row: int) -> float:
        """The expected market seconds to finish on a row of the pool, as shown to the user."""
        return self.outlook.of(row)[1]

    def near_earliest(self, row: int, tolerance: float = TIME_TOLERANCE) -> bool:
        """Whether a row of the pool finishes within `tolerance` of the earliest candidate. Only for `fastest` in mode
        "safe", and in mode "late"."""
        return self.seconds(row) <= self.earliest_s * (1 + tolerance)

    def odds(self, row: int) -> float:
        """The probability (0 to 1) that a row of the pool meets the limits. Only in mode "likely"."""
        assert self.chances is not None
        return float(self.chances.probability[self.pool.at(row)])

    def ranked_odds(self, row: int) -> float:
        """The probability by which a row of the pool ranks in mode "likely": that of the best row if the job is
        measured first and this is nearly as likely to meet the limits."""
        assert self.chances is not None
        key = -float(self.chances.falling[self.pool.at(row)])
        return key - 1 if key > 1 else key

    def measured_first(self, row: int) -> bool:
        """Whether the odds of a row assume that the job is measured there before on-demand is rented."""
        return self.chances is not None and bool(self.chances.measured_first[self.pool.at(row)])


def rank(demand: Demand, forecast: Forecast, filtered: Filtered) -> Ranking:
    """Rank the offers that passed the filter, best first."""
    pool, usable, current = filtered.pool, filtered.usable, filtered.current
    left_s, left = time_left_s(demand, forecast), budget_left(demand)
    instead = baseline(demand, forecast, filtered)
    if left is None and left_s is None and filtered.usable_at.size:
        outlook = Outlook(forecast, filtered.usable_at, Limits(), instead)
        keys_of, earliest_s = _by_objective(demand, forecast, outlook, filtered.usable_at)
        order = _head(filtered.usable_at, outlook, keys_of, pool, current)
        reasons, tiers, counts = filtered.rejection_reasons, filtered.unbound, filtered.counts
        return Ranking("safe", pool.rows[order], reasons, pool, tiers, counts, outlook, instead, keys_of, earliest_s)
    paid, timely, tiers = _tiers(demand, forecast, usable)
    best = int(tiers.max(initial=IMPOSSIBLE))
    mode: Mode = "safe" if best == SAFE else "likely" if best == POSSIBLE else "late"
    if best > IMPOSSIBLE:
        among = usable & (tiers == best)
    else:
        among = usable & (paid == max(int(paid[usable].max(initial=IMPOSSIBLE)), POSSIBLE))
    candidates = np.flatnonzero(among)
    if not candidates.size:
        mode = "infeasible"
    limits = (
        kept_limits(demand, forecast, usable, tiers)
        if mode == "safe"
        else Limits(waits=False, left_cost=None if left is None else float(left))
    )
    outlook, odds, earliest_s = Outlook(forecast, filtered.usable_at, limits, instead), None, 0.0
    if mode == "safe":
        keys_of, earliest_s = _by_objective(demand, forecast, outlook, candidates)
    elif mode == "likely":
        odds = chances(forecast, among, usable, left_s, left)
        keys_of = partial(_by_chance, odds.falling, pool.spot.astype(np.float64), outlook)
    else:
        earliest_s = _earliest_s(outlook, candidates)
        keys_of = partial(_by_finish, outlook, earliest_s)
    order = _head(candidates, outlook, keys_of, pool, current)
    out = usable & ~among
    rejection_reasons, counts = filtered.rejection_reasons, filtered.counts
    if out.any():
        rejection_reasons = rejection_reasons.copy()
        why = (
            RejectionReason.BUDGET
            if mode in ("late", "infeasible")
            else np.where(paid < timely, RejectionReason.BUDGET, RejectionReason.DEADLINE)[out]
        )
        rejection_reasons[pool.rows[out]] = why
        added = {
            rejection_reason: int(np.count_nonzero(why == rejection_reason))
            for rejection_reason in (RejectionReason.DEADLINE, RejectionReason.BUDGET)
        }
        only_budget = mode in ("late", "infeasible")
        counts = counts | ({RejectionReason.BUDGET: int(np.count_nonzero(out))} if only_budget else added)
    return Ranking(
        mode, pool.rows[order], rejection_reasons, pool, tiers, counts, outlook, instead, keys_of, earliest_s, odds
    )


def may_keep_limits(demand: Demand, forecast: Forecast, filtered: Filtered) -> bool:
    """Whether some offer may meet the deadline and the budget: the mode of `rank` is "safe" or "likely"."""
    _, _, tiers = _tiers(demand, forecast, filtered.usable)
    return bool((tiers > IMPOSSIBLE).any())


def _tiers(demand: Demand, forecast: Forecast, usable: NDArray[np.bool_]) -> tuple[Tiers, Tiers, Tiers]:
    """How each offer meets (the budget, the deadline, both); an offer that is not usable meets none of them."""
    paid = affordable(demand, forecast)
    if demand.hurries:  # the deadlines of other jobs do not justify risking the budget
        paid = np.where(paid == SAFE, paid, np.int8(IMPOSSIBLE))
    timely = on_time(demand, forecast, usable & (paid == SAFE))
    return paid, timely, np.where(usable, np.minimum(timely, paid), np.int8(IMPOSSIBLE))


def _by_objective(demand: Demand, forecast: Forecast, outlook: Outlook, candidates: Rows) -> tuple[KeysOf, float]:
    """(the sort keys of the objective, the earliest finish if the objective is `fastest`, else 0).

    `fastest` treats candidates near the earliest as equally early, so that their cost decides. For a job of unknown
    speed that is not running, its starting offer comes first.
    """
    objective, earliest_s = demand.job.spec.objective, 0.0
    keys_of: KeysOf = partial(_by_value, objective, outlook)
    if objective.cost_weight == 0:
        earliest_s = _earliest_s(outlook, candidates)
        keys_of = partial(_by_finish, outlook, earliest_s)
    if forecast.speed_known or forecast.pool.current is not None:
        return keys_of, earliest_s
    start = starting_position(objective, forecast, candidates)
    return partial(_starting, start, keys_of), earliest_s


def _earliest_s(outlook: Outlook, candidates: Rows) -> float:
    """The earliest finish of the candidates, in seconds from now. Exact figures for the candidates are computed first
    under a deadline, or if there is only one; otherwise they would not change the earliest finish."""
    if outlook.limits.left_s is not None or len(candidates) == 1:
        outlook.look_at(candidates)
    return float(outlook.seconds[candidates].min(initial=np.inf))


def _by_value(objective: Objective, outlook: Outlook, positions: Rows) -> Keys:
    return objective_keys(objective, outlook.cost[positions], outlook.seconds[positions])


def _by_finish(outlook: Outlook, earliest_s: float, positions: Rows) -> Keys:
    return tolerant_keys(outlook.cost[positions], outlook.seconds[positions], earliest_s)


def _by_chance(falling: Floats, spot: Floats, outlook: Outlook, positions: Rows) -> Keys:
    return falling[positions], spot[positions], outlook.cost[positions]


def _starting(start: int, keys_of: KeysOf, positions: Rows) -> Keys:
    main, *rest = keys_of(positions)
    return np.where(positions == start, -np.inf, main), *rest


def standing(ranking: Ranking, filtered: Filtered) -> tuple[Rows, list[tuple[float, ...]]]:
    """(positions of all usable rows, the sort keys of each). The best row is first; rows that miss a limit are last.

    The tolerance of `fastest` is relative to the earliest finish in this market.
    """
    positions = filtered.usable_at
    ranking.outlook.look_at(positions)
    columns = (-ranking.tiers[positions].astype(np.float64), *ranking.keys_of(positions))
    order = np.lexsort(columns[::-1])
    return positions[order], list(zip(*(column[order].tolist() for column in columns), strict=True))


def _head(candidates: Rows, outlook: Outlook, keys_of: KeysOf, pool: Pool, current: int | None) -> Rows:
    """The first of the candidates (positions in the pool), in order; if all are at one site, also the best at another
    one."""
    here = None if current is None else pool.at(current)
    if here is not None and here not in candidates:
        here = None
    order = outlook.best(candidates, keys_of, BEST, here)
    if len(order) == len(candidates):
        return order
    site = pool.site[pool.cell[order]]
    if not (site == site[0]).all():
        return order
    elsewhere = candidates[pool.site[pool.cell[candidates]] != site[0]]
    return np.append(order, outlook.best(elsewhere, keys_of, 1)[:1]) if elsewhere.size else order


def reasons_to_go(
    objective: Objective, ranking: Ranking, row: int, tolerance: float = TIME_TOLERANCE
) -> tuple[Objective, ...]:
    """The objectives, each of which justifies leaving another offer for `row`.

    These are the job's own objective and, for `fastest`, also the cost, if the finish on `row` is within `tolerance` of
    the earliest. A `fastest` job never moves to a later finish in order to save money.
    """
    if objective.cost_weight == 0 and ranking.mode == "safe" and ranking.near_earliest(row, tolerance):
        return (objective, CHEAPEST)
    return (objective,)
