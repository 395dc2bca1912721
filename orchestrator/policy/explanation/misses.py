"""Misses: the texts for an offer that misses a deadline or exceeds a budget, and for the choice of offer for a job that
will be late on every offer."""

from __future__ import annotations

import numpy as np

from orchestrator.formats.readable import span
from orchestrator.policy.demand import TIME_TOLERANCE, Demand
from orchestrator.policy.explanation.nearest import hopeless
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import RejectionReason
from orchestrator.policy.ranking.limits import IMPOSSIBLE, budget_left, time_left_s
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.outlook import Shown
from orchestrator.policy.ranking.renting import rent_and_reserve
from providers.money import format_usd


def why_late(demand: Demand, forecast: Forecast, ranking: Ranking, row: int, shown: Shown) -> str:
    """Why a row that is rejected for the deadline misses it, and by how much it exceeds the budget if it does. `shown`:
    the figures shown for the row."""
    late = _why_late(demand, forecast, ranking, row, shown)
    return f"{late}, and {_over_budget(demand, shown)}" if _too_expensive(demand, forecast, row) else late


def why_over_budget(demand: Demand, forecast: Forecast, row: int, shown: Shown) -> str:
    """Why a row that is rejected for the budget exceeds it, and by how much it misses the deadline if it does. `shown`:
    the figures shown for the row."""
    over, late = _why_over_budget(demand, forecast, row, shown), _too_late(demand, forecast, row, shown)
    if not hopeless(demand, forecast, np.array([row]))[0]:
        return over
    if over.startswith("would cost"):
        return f"{over} and {late.removeprefix('would ')}"
    return f"{over}, and {'it ' * ((budget_left(demand) or 0) <= 0)}{late}"


def why_chosen_late(demand: Demand, forecast: Forecast, ranking: Ranking, row: int) -> str:
    """Why a job that cannot meet its deadline is placed on or kept at `row`."""
    seconds, pool = ranking.seconds(row), ranking.pool
    late_s = seconds - (time_left_s(demand, forecast) or 0.0)
    left_out = ranking.rejection_reasons[pool.rows] == RejectionReason.BUDGET
    within = ""
    if ranking.outlook.seconds[left_out].min(initial=np.inf) < ranking.earliest_s:
        high, left = float(forecast.high.cost[forecast.pool.at(row)]), budget_left(demand)
        within = " within the budget" if left is None or high <= left else " that may stay within the budget"
    first = f"this is the earliest finish{within}"
    if not ranking.near_earliest(row):
        first = "no other offer finishes much earlier"
    elif seconds > ranking.earliest_s:
        first = f"this is the lowest cost within {TIME_TOLERANCE:.0%} of the earliest finish{within}"
    if demand.hurries:
        return f"it cannot finish in time for the jobs after it; {first}, {span(late_s)} too late for them"
    return f"the deadline cannot be met; {first}, {span(late_s)} late"


def _why_late(demand: Demand, forecast: Forecast, ranking: Ranking, row: int, shown: Shown) -> str:
    left_s = time_left_s(demand, forecast) or 0.0
    if ranking.tier(row) == IMPOSSIBLE or shown.seconds > left_s:
        return _too_late(demand, forecast, row, shown)
    if shown.most_seconds > left_s:
        return f"could finish {_after(demand, shown.most_seconds - left_s)}"
    late_s = float(forecast.high.seconds[forecast.pool.at(row)]) - left_s
    if late_s > 0:
        return f"could finish {_after(demand, late_s)}{_alone(forecast, row)}"
    return "leaves no time to switch to on-demand if the machine is lost"


def _too_late(demand: Demand, forecast: Forecast, row: int, shown: Shown) -> str:
    left_s = time_left_s(demand, forecast) or 0.0
    if shown.seconds > left_s:
        return f"would finish {_after(demand, shown.seconds - left_s)}"
    late_s = float(forecast.mid.seconds[forecast.pool.at(row)]) - left_s
    return f"would finish {_after(demand, late_s)}{_alone(forecast, row)}"


def _after(demand: Demand, late_s: float) -> str:
    """Such as `3.2 h after the deadline`, if the deadline is the job's own."""
    return f"{span(late_s)} {'too late for the jobs after it' if demand.hurries else 'after the deadline'}"


def _alone(forecast: Forecast, row: int) -> str:
    """The figures shown for a spot offer may be in time only because the rest of the work runs on demand."""
    return " without on-demand" * bool(forecast.pool.spot[forecast.pool.at(row)])


def _why_over_budget(demand: Demand, forecast: Forecast, row: int, shown: Shown) -> str:
    left = budget_left(demand) or 0
    if left <= 0:
        return "the budget is spent"
    at = forecast.pool.at(row)
    if forecast.known and shown.cost > left:
        return _over_budget(demand, shown)
    fixed, rent = round(float(forecast.move_fixed[forecast.pool.cell[at]])), _to_rent(demand, forecast, at)
    if fixed > left and demand.started:
        return f"moving there would cost {format_usd(fixed - left)} more than the remaining budget"
    if rent >= left:
        return f"renting and ending a machine takes {format_usd(rent + 1 - left)} more than the remaining budget"
    most = shown.most_cost if shown.most_cost > left else float(forecast.high.cost[at])
    return f"could cost {format_usd(round(most) - left)} over the budget"


def _to_rent(demand: Demand, forecast: Forecast, at: int) -> int:
    """nano-USD: the remaining budget must exceed this to rent a machine at a position of the pool."""
    return int(rent_and_reserve(demand, forecast)[at])


def _too_expensive(demand: Demand, forecast: Forecast, row: int) -> bool:
    """Whether the remaining budget cannot pay for a row."""
    left = budget_left(demand)
    return left is not None and forecast.known and float(forecast.low.cost[forecast.pool.at(row)]) > left


def _over_budget(demand: Demand, shown: Shown) -> str:
    return f"would cost {format_usd(round(shown.cost) - (budget_left(demand) or 0))} over the budget"
