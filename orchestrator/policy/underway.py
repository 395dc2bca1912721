"""Underway: decides whether a move that has begun still pays, now that prices, progress and costs have changed.

The engine asks before each step that costs money or cannot be undone. The cost of the move so far is spent either way
(Forecast counts only the rest), so the move continues if the rest of it gains anything, or if it meets a limit that
staying would miss. Starting a move requires more (gate.py); the difference keeps jobs from moving back and forth.

A job that cannot stay, or is not running, continues its move with two exceptions: the target misses a limit that
another offer meets, or another offer is better by as much as a voluntary move must gain. An unmeasured job also
switches to an offer that costs that much less to try.
"""

from __future__ import annotations

import math
from dataclasses import replace

from orchestrator.model import Objective, Placement
from orchestrator.policy import gate
from orchestrator.policy.demand import TIME_TOLERANCE, MoveLimits, Underway
from orchestrator.policy.explanation import explain
from orchestrator.policy.explanation.placement import PlacementBuilder
from orchestrator.policy.ranking.chance import SURER
from orchestrator.policy.ranking.eligible import NONE, RejectionReason
from orchestrator.policy.ranking.limits import budget_left
from orchestrator.policy.ranking.objectives import log_value
from orchestrator.policy.ranking.order import reasons_to_go
from orchestrator.policy.trial import trial
from orchestrator.policy.unmeasured import cost_until_measured
from providers.money import format_usd

NEAR = 2 * TIME_TOLERANCE  # within this share of the earliest finish, a target stays near; wider than for a new move
EARLIER = 0.9  # a late job changes to another offer only if that takes less than this share of the time


def weighed_again(builder: PlacementBuilder, move: Underway, here: int | None, limits: MoveLimits) -> Placement:
    """ "move" to continue, or "stay" with the reason to abort the move.

    `here` is the row where the job runs. If its offer no longer has a price, the move continues unless its target is
    ruled out. For a job that has nowhere to stay, "stay" means that another offer must be found.
    """
    target, current = builder.filtered.target, builder.filtered.current
    if target is None:
        return builder.placement("stay", here, f"{move.to} is no longer offered")
    if current is None:
        if why := _better_elsewhere(builder, move, target, limits):
            return builder.placement("stay", None, why)
        return builder.placement("move", target, f"{move.to} is still the right choice")
    if builder.market.priced[current]:
        why = _why_abort(builder, move, current, target, limits)
    else:
        why = _why_ruled_out(builder, move, target)
    if why:
        return builder.placement("stay", current, why)
    return builder.placement("move", target, f"the move to {move.to} still pays")


def _better_elsewhere(builder: PlacementBuilder, move: Underway, target: int, limits: MoveLimits) -> str:
    """Why a job that cannot stay should not go to the target, but to another offer; empty if it should go to the
    target."""
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    if why := _why_ruled_out(builder, move, target):
        return why
    best = int(ranking.order[0])
    if best == target or move.reason == "probe":
        return ""
    if not forecast.speed_known:
        there, instead = (
            cost_until_measured(forecast, forecast.pool.at(target)),
            cost_until_measured(forecast, forecast.pool.at(best)),
        )
        if instead < (1 - limits.min_gain) * there:
            return f"{market.ids[best]} now costs {1 - instead / there:.0%} less until the job's speed is measured"
    if ranking.mode == "likely":
        better = ranking.odds(best) > ranking.odds(target) + SURER
        left = budget_left(demand)
        if not better and left is not None and ranking.cost(best) <= left < ranking.cost(target):
            over = f"{move.to} would cost {format_usd(round(ranking.cost(target)) - left)} over the budget"
            return f"{market.ids[best]} is now as likely to meet its limits, and {over}"
    elif ranking.mode == "late":
        better = ranking.seconds(best) < EARLIER * ranking.seconds(target)
    else:
        least = math.log(1 - limits.min_gain)
        better = any(
            _value(builder, by, best) < _value(builder, by, target) + least
            for by in reasons_to_go(demand.job.spec.objective, ranking, best)
        )
    return f"{market.ids[best]} {explain.why_instead(demand, forecast, ranking, best, target)}" if better else ""


def _why_ruled_out(builder: PlacementBuilder, move: Underway, target: int) -> str:
    """Why the job may not use the target at all, or misses a limit there that another offer meets; else empty."""
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    if ranking.rejection_reasons[target] == NONE:
        return ""
    return f"{move.to}: {explain.why_rejected(demand, market, forecast, ranking, target)}"


def _value(builder: PlacementBuilder, objective: Objective, row: int) -> float:
    return log_value(objective, *builder.ranking.outlook.of(row))


def _why_abort(builder: PlacementBuilder, move: Underway, current: int, target: int, limits: MoveLimits) -> str:
    """Why the rest of the move does not pay; empty if it pays."""
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    can_stay, can_go = ranking.rejection_reasons[current] == NONE, ranking.rejection_reasons[target] == NONE
    if not can_go and ranking.rejection_reasons[target] < RejectionReason.DEADLINE:
        return f"{move.to}: {explain.why_rejected(demand, market, forecast, ranking, target)}"
    if move.reason == "probe":
        tried = trial(demand, market, forecast.perf, forecast, ranking)
        if tried is not None and tried.row is not None:
            return ""
    if (can_stay and not can_go) or ranking.tier(target) < ranking.tier(current):
        return f"there, it {explain.why_rejected(demand, market, forecast, ranking, target)}"
    if can_go and not can_stay:
        return ""
    if ranking.mode == "likely" and can_go:
        pays = ranking.odds(target) > ranking.odds(current)
    elif ranking.mode == "late" and can_go:
        pays = ranking.seconds(target) < ranking.seconds(current)
    else:
        rest = replace(limits, move_margin=1.0, min_gain=0.0, least_saving_nano_usd=0)
        pays = any(
            gate.worth_moving(by, forecast, current, target, rest)
            for by in reasons_to_go(demand.job.spec.objective, ranking, target, NEAR)
        )
    return "" if pays else explain.why_given_up(demand, forecast, ranking, target, current)
