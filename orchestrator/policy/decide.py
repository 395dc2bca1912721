"""decide: jobs, market, throughput and what runs -> Plan. Pure and deterministic; `market.at` is now.

screen (eligible.py) -> forecast (cost.py) -> rank (objectives.py) -> gate (gate.py) -> explain (explain.py).
Jobs are decided one by one; decisions for groups will sit behind the same signature.

Must not know: how a plan is applied, stored or shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.market import Market
from orchestrator.model import TERMINAL, Placement, Plan, derived_id
from orchestrator.perf import PerfBook
from orchestrator.policy import explain, gate
from orchestrator.policy.cost import forecast
from orchestrator.policy.demand import Demand, Rails, Running
from orchestrator.policy.eligible import NONE, screen
from orchestrator.policy.objectives import rank
from orchestrator.policy.placement import Draft

_HANDS_OFF = TERMINAL | {"paused", "pausing", "cancelling"}
_SURER = 0.05  # how much likelier another offer must be before an unsafe job moves to it
_EARLIER = 0.9  # how much sooner, as a share of the time, before a late job moves


def decide(
    jobs: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    *,
    rails: Rails | None = None,
) -> Plan:
    """One placement per job, in order of job ids, with every offer that was looked at and why it was not taken.

    `running` maps job ids to where they run; a job whose machine is gone is not in it. Actions: "place" a job that runs
    nowhere or whose machine is leaving, "stay", "move", "wait" (no offer fits; a job that runs is to stop with a
    checkpoint and to hold no machine), "none" (paused, ended, or a move is under way).
    """
    limits = rails if rails is not None else Rails()
    placements = tuple(
        _place(demand, market, perf, running.get(demand.job.id), limits)
        for demand in sorted(jobs, key=lambda d: d.job.id)
    )
    simulated = bool(market.simulated.any())
    content = repr((market.at, market.digest, simulated, placements)).encode()
    return Plan(derived_id("plan", market.at, content), market.at, market.digest, simulated, placements)


def _place(demand: Demand, market: Market, perf: PerfBook, running: Running | None, rails: Rails) -> Placement:
    here = None if running is None else market.row(running.offer_id)
    current = None if running is None or running.leaving else here
    screened = screen(demand.job, market, rails, current)
    outlook = forecast(demand, market, perf, running, current)
    ranking = rank(demand, market, outlook, screened, current)
    draft = Draft(demand, market, outlook, ranking, current, screened)

    if demand.job.state in _HANDS_OFF:
        return draft.placement("none", None, f"the job is {demand.job.state}")
    if running is not None and running.migrating:
        under_way = draft.placement("none", here, "a move is under way")
        return replace(under_way, offer_id=running.offer_id)
    if running is not None and not running.leaving and (here is None or not market.priced[here]):
        stay = draft.placement("stay", None, "its offer is no longer listed or priced: nothing to compare with")
        return replace(stay, offer_id=running.offer_id)
    if ranking.mode == "infeasible":
        return draft.placement("wait", None, explain.why_waiting(demand, market, outlook, ranking))
    if running is not None and current is not None:
        return _stay_or_move(draft, running, current, rails)
    best = int(ranking.order[0])
    return draft.placement("place", best, explain.why_chosen(demand, market, outlook, ranking, best, None))


def _stay_or_move(draft: Draft, running: Running, current: int, rails: Rails) -> Placement:
    demand, market, outlook, ranking = draft.demand, draft.market, draft.outlook, draft.ranking
    objective = demand.job.spec.objective
    best = int(ranking.order[0])
    held = ""
    target: int | None = best
    if best == current:
        target = None
    elif ranking.bars[current] != NONE:
        pass  # it breaks a promise that the best keeps: no gate
    elif ranking.mode == "safe":
        held = gate.held_back(running, market.at, rails)
        order = ranking.order.tolist()
        better = () if held else order[: order.index(current)]
        paying = (go for go in better if gate.worth_moving(objective, market, outlook, current, go, rails))
        target = next(paying, None)
    elif ranking.chance is not None:
        target = best if ranking.chance[best] > ranking.chance[current] + _SURER else None
    elif outlook.seconds.mid[best] > _EARLIER * outlook.seconds.mid[current]:
        target = None

    if target is not None:
        reason = explain.why_chosen(demand, market, outlook, ranking, target, current)
        return draft.placement("move", target, reason)
    if best == current or ranking.mode != "safe":
        reason = explain.why_chosen(demand, market, outlook, ranking, current, None)
    else:
        reason = f"{market.ids[best]} {explain.why_not_moved(demand, outlook, best, current, held)}"
    threshold = None
    others = ranking.order[ranking.order != current]
    if ranking.mode == "safe" and others.size:
        go = int(others[0])
        threshold = gate.price_worth_moving(objective, market, outlook, current, go, rails)
    return draft.placement("stay", current, reason, held=held, threshold=threshold)
