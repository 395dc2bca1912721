"""The gate of voluntary moves: stay unless a move pays for itself, with a margin, while it lasts.

A move is judged over its expected residence: until the work is done, the target is lost, or the next voluntary move may
come, whichever is first. Over that horizon, what staying takes must exceed what the target takes plus `move_margin`
times the cost of moving (both machines billed during start-up, the gap in training, egress) by `min_gain`. The idea is
Karpenter's balanced consolidation (savings weighed against disruption); its spot consolidation RFC tells what happens
without: a walk down the price ladder into one interruption after the other.

Must not know: how offers were ranked, deadlines, budgets: what breaks a promise never comes here.
"""

from __future__ import annotations

import math

from orchestrator.model import Objective
from orchestrator.policy.cost import Outlook
from orchestrator.policy.demand import Rails, Running
from orchestrator.policy.objectives import log_value

_DAY_S = 86_400.0


def held_back(running: Running, at_ms: int, rails: Rails) -> str:
    """Why no voluntary move may be made now; empty if one may."""
    last_ms = running.since_ms if running.last_move_ms is None else max(running.last_move_ms, running.since_ms)
    rest_s = rails.min_dwell_s - (at_ms - last_ms) / 1000
    if rest_s > 0:
        return f"has been here for less than {rails.min_dwell_s / 60:.0f} min"
    if running.moves_today >= rails.max_moves_per_day:
        return f"has moved {running.moves_today} times today"
    return ""


def worth_moving(objective: Objective, outlook: Outlook, stay: int, go: int, rails: Rails) -> bool:
    """Whether moving from row `stay` to row `go` pays for itself."""
    limit, share, seconds = _limit(objective, outlook, stay, go, rails)
    at = outlook.pool.at(go)
    moving = float(outlook.pool.price_s[at] * outlook.move_billed_s[at] + outlook.move_fixed[at])
    cost = share * float(outlook.mid.run_cost[at]) + rails.move_margin * moving
    return log_value(objective, cost, seconds) <= limit


def price_worth_moving(objective: Objective, outlook: Outlook, stay: int, go: int, rails: Rails) -> int | None:
    """The price (nano-USD per hour) of row `go` up to which a move there would pay; None if it would at no price."""
    if objective.cost_weight == 0:
        return None
    limit, share, seconds = _limit(objective, outlook, stay, go, rails)
    at = outlook.pool.at(go)
    log_cost = (limit - objective.time_weight * math.log(seconds)) / objective.cost_weight
    billed_s = share * float(outlook.mid.run_s[at]) + rails.move_margin * float(outlook.move_billed_s[at])
    fixed = share * float(outlook.mid.run_dues[at]) + rails.move_margin * float(outlook.move_fixed[at])
    spare = math.exp(log_cost) - fixed
    if spare <= 0 or billed_s <= 0:
        return None
    return int(spare / billed_s * 3600)


def price_worth_choosing(objective: Objective, outlook: Outlook, row: int, rival: int) -> int | None:
    """The price (nano-USD per hour) up to which `row` is no worse than `rival` for a job that runs nowhere; None if it
    is so at no price, or at any."""
    if objective.cost_weight == 0:
        return None
    at, other = outlook.pool.at(row), outlook.pool.at(rival)
    mid = outlook.mid
    value = log_value(objective, float(mid.cost[other]), float(mid.seconds[other]))
    log_cost = (value - objective.time_weight * math.log(max(float(mid.seconds[at]), 1e-3))) / objective.cost_weight
    billed_s = float(mid.run_s[at] + outlook.move_billed_s[at])
    spare = math.exp(min(log_cost, 700.0)) - float(mid.run_dues[at] + outlook.move_fixed[at])
    if spare <= 0 or billed_s <= 0:
        return None
    return int(spare / billed_s * 3600)


def _limit(objective: Objective, outlook: Outlook, stay: int, go: int, rails: Rails) -> tuple[float, float, float]:
    """(log of the objective that a move may reach at most, share of the work within the horizon, its seconds)."""
    residence_s = _DAY_S / max(rails.max_moves_per_day, 1)
    here, there = outlook.pool.at(stay), outlook.pool.at(go)
    hazard = float(outlook.pool.hazard_s[there])
    if hazard > 0:
        residence_s = min(residence_s, 1 / hazard)
    staying_s = float(outlook.mid.run_s[here])
    share = min(1.0, residence_s / staying_s) if staying_s > 0 else 1.0
    staying = log_value(objective, share * float(outlook.mid.run_cost[here]), share * staying_s)
    gap_s = float(outlook.begin_s[there])
    seconds = max(share * float(outlook.mid.run_s[there]) + rails.move_margin * gap_s, 1e-3)
    return staying + math.log(1 - rails.min_gain), share, seconds
