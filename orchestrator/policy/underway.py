"""Under way: whether what has begun still pays, now that prices, progress and bills are others.

Asked before each step that costs money or cannot be taken back. What the move has cost already is paid either way
(Forecast counts the rest alone), so it goes on while that rest brings in anything, or while it keeps a promise that
staying breaks. To begin it took more than that (gate.py): between the two lies what keeps a job from going to and fro.
A job that cannot stay where it is, or runs nowhere, goes where it is bound for unless that breaks a promise which
another offer keeps, or another is better by as much as a voluntary move must bring in; of a job that was not measured
also if another is cheaper to be wrong on by so much.
"""

from __future__ import annotations

import math
from dataclasses import replace

from orchestrator.model import Placement
from orchestrator.policy import gate
from orchestrator.policy.demand import MoveLimits, Underway
from orchestrator.policy.ranking.eligible import NONE, RejectionReason
from orchestrator.policy.ranking.objectives import log_value
from orchestrator.policy.telling import explain
from orchestrator.policy.telling.placement import PlacementBuilder
from orchestrator.policy.trial import trial
from orchestrator.policy.unmeasured import stake

SURER = 0.05  # how much likelier another offer must be before a job that is not safe goes there instead
EARLIER = 0.9  # how much sooner, as a share of the time, before a late one does


def weighed_again(builder: PlacementBuilder, move: Underway, here: int | None, limits: MoveLimits) -> Placement:
    """ "move" where the job is bound for, or "stay" with the reason why the move is given up.

    `here` is the row where it runs. A job that runs there and whose offer there is no longer priced goes on. "stay" of
    a job that cannot stay anywhere means that another place is to be found for it.
    """
    target, current = builder.filtered.target, builder.filtered.current
    if target is None:
        return builder.placement("stay", here, f"{move.to} is not offered any more")
    if current is None:
        if why := _better_elsewhere(builder, move, target, limits):
            return builder.placement("stay", None, why)
        return builder.placement("move", target, f"{move.to} is still to be taken")
    if builder.market.priced[current]:
        why = _given_up(builder, move, current, target, limits)
        if why:
            return builder.placement("stay", current, why)
    return builder.placement("move", target, f"the move to {move.to} still pays")


def _better_elsewhere(builder: PlacementBuilder, move: Underway, target: int, limits: MoveLimits) -> str:
    """Why a job with nowhere to stay is not to go where it is bound for; empty if it is."""
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    if ranking.rejection_reasons[target] != NONE:
        return f"{move.to}: {explain.why_barred(demand, market, forecast, ranking, target)}"
    best = int(ranking.order[0])
    if best == target or move.reason == "probe":
        return ""
    if not forecast.speed_known:
        there, instead = stake(forecast, forecast.pool.at(target)), stake(forecast, forecast.pool.at(best))
        if instead < (1 - limits.min_gain) * there:
            return f"{market.ids[best]} is {1 - instead / there:.0%} cheaper to be wrong on by now"
    if ranking.mode == "likely":
        better = ranking.odds(best) > ranking.odds(target) + SURER
    elif ranking.mode == "late":
        better = _seconds(builder, best) < EARLIER * _seconds(builder, target)
    else:
        there, instead = _value(builder, target), _value(builder, best)
        better = instead < there + math.log(1 - limits.min_gain)
    return f"{market.ids[best]} {explain.why_instead(demand, forecast, ranking, best, target)}" if better else ""


def _seconds(builder: PlacementBuilder, row: int) -> float:
    return float(builder.forecast.mid.seconds[builder.forecast.pool.at(row)])


def _value(builder: PlacementBuilder, row: int) -> float:
    at = builder.forecast.pool.at(row)
    return log_value(builder.demand.job.spec.objective, float(builder.forecast.mid.cost[at]), _seconds(builder, row))


def _given_up(builder: PlacementBuilder, move: Underway, current: int, target: int, limits: MoveLimits) -> str:
    """Why the move is not worth its rest; empty if it is."""
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    can_stay, can_go = ranking.rejection_reasons[current] == NONE, ranking.rejection_reasons[target] == NONE
    if not can_go and ranking.rejection_reasons[target] < RejectionReason.DEADLINE:
        return f"{move.to}: {explain.why_barred(demand, market, forecast, ranking, target)}"
    if (can_stay and not can_go) or ranking.tier(target) < ranking.tier(current):
        return f"there, it {explain.why_barred(demand, market, forecast, ranking, target)}"
    if can_go and not can_stay:
        return ""
    if move.reason == "probe":
        tried = trial(demand, market, forecast.perf, forecast, ranking)
        if tried is not None and tried.row is not None:
            return ""
    if ranking.mode == "likely" and can_go:
        pays = ranking.odds(target) > ranking.odds(current)
    elif ranking.mode == "late" and can_go:
        pays = forecast.mid.seconds[forecast.pool.at(target)] < forecast.mid.seconds[forecast.pool.at(current)]
    else:
        rest = replace(limits, move_margin=1.0, min_gain=0.0)
        pays = gate.worth_moving(demand.job.spec.objective, forecast, current, target, rest)
    return "" if pays else explain.why_given_up(demand, forecast, ranking, target, current)
