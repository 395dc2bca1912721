"""Under way: whether a move that has begun still pays, now that prices, progress and bills are others.

Asked before each step that costs money or cannot be taken back. What the move has cost already is paid either way
(Outlook counts the rest alone), so it goes on while that rest brings in anything, or while it keeps a promise that
staying breaks. To begin it took more than that (gate.py): between the two lies what keeps a job from going to and fro.
Must not know: how a move is carried out, which steps it has.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model import Placement
from orchestrator.policy import explain, gate
from orchestrator.policy.demand import Rails, Underway
from orchestrator.policy.eligible import NONE, Bar
from orchestrator.policy.placement import Draft
from orchestrator.policy.trial import trial


def weighed_again(draft: Draft, move: Underway, here: int | None, rails: Rails) -> Placement:
    """ "move" where the job is bound for, or "stay" with the reason why the move is given up.

    `here` is the row where it runs. A job that cannot stay there, or whose offer there is no longer priced, goes on.
    """
    target, current = draft.screened.target, draft.screened.current
    if target is None:
        return draft.placement("stay", here, f"{move.to} is not offered any more")
    if current is not None and draft.market.priced[current]:
        why = _given_up(draft, move, current, target, rails)
        if why:
            return draft.placement("stay", current, why)
    return draft.placement("move", target, f"the move to {move.to} still pays")


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
