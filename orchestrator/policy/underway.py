"""Under way: whether what has begun still pays, now that prices, progress and bills are others.

Asked before each step that costs money or cannot be taken back. What the move has cost already is paid either way
(Outlook counts the rest alone), so it goes on while that rest brings in anything, or while it keeps a promise that
staying breaks. To begin it took more than that (gate.py): between the two lies what keeps a job from going to and fro.
A job that cannot stay where it is, or runs nowhere, goes where it is bound for unless that breaks a promise which
another offer keeps, or another is better by as much as a voluntary move must bring in; of a job that nobody measured
also if another is cheaper to be wrong on by so much.
Must not know: how a move is carried out, which steps it has.
"""

from __future__ import annotations

import math
from dataclasses import replace

from orchestrator.model import Placement
from orchestrator.policy import explain, gate
from orchestrator.policy.demand import Rails, Underway
from orchestrator.policy.eligible import NONE, Bar
from orchestrator.policy.objectives import log_value
from orchestrator.policy.placement import Draft
from orchestrator.policy.trial import trial
from orchestrator.policy.unmeasured import stake

SURER = 0.05  # how much likelier another offer must be before a job that is not safe goes there instead
EARLIER = 0.9  # how much sooner, as a share of the time, before a late one does


def weighed_again(draft: Draft, move: Underway, here: int | None, rails: Rails) -> Placement:
    """ "move" where the job is bound for, or "stay" with the reason why the move is given up.

    `here` is the row where it runs. A job that runs there and whose offer there is no longer priced goes on. "stay" of
    a job that cannot stay anywhere means that another place is to be found for it.
    """
    target, current = draft.screened.target, draft.screened.current
    if target is None:
        return draft.placement("stay", here, f"{move.to} is not offered any more")
    if current is None:
        if why := _better_elsewhere(draft, move, target, rails):
            return draft.placement("stay", None, why)
        return draft.placement("move", target, f"{move.to} is still to be taken")
    if draft.market.priced[current]:
        why = _given_up(draft, move, current, target, rails)
        if why:
            return draft.placement("stay", current, why)
    return draft.placement("move", target, f"the move to {move.to} still pays")


def _better_elsewhere(draft: Draft, move: Underway, target: int, rails: Rails) -> str:
    """Why a job with nowhere to stay is not to go where it is bound for; empty if it is."""
    demand, market, outlook, ranking = draft.demand, draft.market, draft.outlook, draft.ranking
    if ranking.bars[target] != NONE:
        return f"{move.to}: {explain.why_barred(demand, market, outlook, ranking, target)}"
    best = int(ranking.order[0])
    if best == target or move.reason == "probe":
        return ""
    if not outlook.speed_known:
        there, instead = stake(outlook, outlook.pool.at(target)), stake(outlook, outlook.pool.at(best))
        if instead < (1 - rails.min_gain) * there:
            return f"{market.ids[best]} is {1 - instead / there:.0%} cheaper to be wrong on by now"
    if ranking.mode == "likely":
        better = ranking.odds(best) > ranking.odds(target) + SURER
    elif ranking.mode == "late":
        better = _seconds(draft, best) < EARLIER * _seconds(draft, target)
    else:
        there, instead = _value(draft, target), _value(draft, best)
        better = instead < there + math.log(1 - rails.min_gain)
    return f"{market.ids[best]} {explain.why_instead(demand, outlook, ranking, best, target)}" if better else ""


def _seconds(draft: Draft, row: int) -> float:
    return float(draft.outlook.mid.seconds[draft.outlook.pool.at(row)])


def _value(draft: Draft, row: int) -> float:
    at = draft.outlook.pool.at(row)
    return log_value(draft.demand.job.spec.objective, float(draft.outlook.mid.cost[at]), _seconds(draft, row))


def _given_up(draft: Draft, move: Underway, current: int, target: int, rails: Rails) -> str:
    """Why the move is not worth its rest; empty if it is."""
    demand, market, outlook, ranking = draft.demand, draft.market, draft.outlook, draft.ranking
    can_stay, can_go = ranking.bars[current] == NONE, ranking.bars[target] == NONE
    if not can_go and ranking.bars[target] < Bar.DEADLINE:
        return f"{move.to}: {explain.why_barred(demand, market, outlook, ranking, target)}"
    if (can_stay and not can_go) or ranking.tier(target) < ranking.tier(current):
        return f"there, it {explain.why_barred(demand, market, outlook, ranking, target)}"
    if can_go and not can_stay:
        return ""
    if move.reason == "probe":
        tried = trial(demand, market, outlook.perf, outlook, ranking)
        if tried is not None and tried.row is not None:
            return ""
    if ranking.mode == "likely" and can_go:
        pays = ranking.odds(target) > ranking.odds(current)
    elif ranking.mode == "late" and can_go:
        pays = outlook.mid.seconds[outlook.pool.at(target)] < outlook.mid.seconds[outlook.pool.at(current)]
    else:
        rest = replace(rails, move_margin=1.0, min_gain=0.0)
        pays = gate.worth_moving(demand.job.spec.objective, outlook, current, target, rest)
    return "" if pays else explain.why_given_up(demand, outlook, ranking, target, current)
