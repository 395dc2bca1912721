"""Trace: how `decide` reached a decision: the rule that compared the options, the facts it used, and each option with
its value.

It calls the same functions as `decide`, but decides nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.formats.readable import span
from orchestrator.market import Market, of_machines
from orchestrator.model import Trace, TracedOption
from orchestrator.perf import PerfBook
from orchestrator.policy import gate
from orchestrator.policy.decide import considered, decide
from orchestrator.policy.demand import TIME_TOLERANCE, Demand, MoveLimits, Running
from orchestrator.policy.ranking.by_deadline import Choice, choices
from orchestrator.policy.ranking.chance import SURER
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import NONE, Filter, Filtered
from orchestrator.policy.ranking.limits import budget_left, rescue_s, time_left_s
from orchestrator.policy.ranking.objectives import log_value, patient
from orchestrator.policy.ranking.order import Ranking, rank, reasons_to_go
from orchestrator.policy.ranking.outages import outage_h, wait_seconds
from orchestrator.policy.ranking.patience import Weighed, weighed
from providers.money import about_usd

MOST_OPTIONS = 8
BY_DEADLINE = "the expected cost to finish in time, with the best decisions from now on (value table over slack)"
BY_ODDS = (
    "the probability of meeting deadline and budget, which no offer is certain to meet; spot on which the job's speed "
    f"is measured first counts as equal to the best if it is at most {100 * SURER:g} points less likely"
)
NEAR = f"the earliest finish (within {TIME_TOLERANCE:.0%} of it, by cost)"
BY_TIME = f"{NEAR}, because the deadline cannot be met"
BY_GATE = "the cost of a move, divided by the highest cost at which it pays: it pays if the result is at most 1"


def trace(demand: Demand, market: Market, perf: PerfBook, running: Running | None, *, limits: MoveLimits) -> Trace:
    """How the present decision about a job was made; the first option is the decision.

    The value of an option is a multiple of the best option's. For a running job, it is the cost of a move divided by
    the highest cost at which the move pays.
    """
    market = of_machines(market, demand.nodes)
    filtered, forecast = considered(demand, Filter(market, limits), market, perf, running, None)
    ranking = rank(demand, forecast, filtered)
    facts = tuple(_facts(demand, forecast, ranking, filtered))
    if ranking.mode == "infeasible":
        return Trace("nothing, because no offer fits", facts, ())
    if running is not None:
        return _of_running(demand, market, perf, running, limits, forecast, ranking, facts)
    if by_deadline := choices(demand, forecast, ranking, filtered, limits):
        return Trace(BY_DEADLINE, facts, _planned(by_deadline, market, forecast, filtered))
    if options := weighed(demand, forecast, ranking, filtered):
        objective = patient(demand.job.spec.objective)
        return Trace(f"objective {objective.name}, because waiting takes time", facts, _patient(options, market))
    return _ranked(demand, forecast, ranking, market, facts)


def _facts(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> list[tuple[str, str]]:
    """The facts used in the decision, with units."""
    market, found = filtered.market, []
    shut = filtered.awaited.tolist()
    found.append(("offers", f"{int(filtered.usable.sum())} can be used now, {len(shut)} lack capacity"))
    left_s, left = time_left_s(demand, forecast), budget_left(demand)
    if left_s is not None:
        found.append(("time left", span(left_s) if left_s >= 0 else f"none: the deadline passed {span(-left_s)} ago"))
        rescue = rescue_s(forecast, filtered.usable)
        if rescue is not None:
            most = f"the fastest on-demand offer may take {span(rescue)}"
            spare = f"{span(left_s - rescue)}: {most}" if left_s >= rescue else f"none: {most}"
            found.append(("time to spare", spare))
    if left is not None:
        found.append(("budget left", about_usd(left)))
    if ranking.order.size:
        best = int(ranking.order[0])
        found.append((f"losses at {market.ids[best]}", market.hazard_provenance(best)))
    for row, wait_s in zip(shut, wait_seconds(market, filtered.awaited).tolist(), strict=True):
        seen = f"{int(market.returns[row])} outages observed to their end"
        outage = f"an outage there lasts {span(3600 * outage_h(market, row))} on average ({seen})"
        found.append((market.ids[row], f"expected to be available again in {span(wait_s)}: {outage}"))
    return found[: 2 * MOST_OPTIONS]


def _planned(
    options: Sequence[Choice], market: Market, forecast: Forecast, filtered: Filtered
) -> tuple[TracedOption, ...]:
    least = max(options[0].cost_nano_usd, 1.0)
    waits = wait_seconds(market, filtered.awaited).tolist()
    offered = forecast.over([each.row for each in options if each.row is not None])
    return tuple(
        TracedOption(
            each.action.replace("_", "-"),
            None if each.row is None else market.ids[each.row],
            min(waits, default=0.0) if each.action == "wait" else 0.0,
            round(each.cost_nano_usd),
            None if each.row is None else float(offered.mid.seconds[offered.pool.at(each.row)]),
            each.cost_nano_usd / least,
        )
        for each in options[:MOST_OPTIONS]
    )


def _patient(options: Sequence[Weighed], market: Market) -> tuple[TracedOption, ...]:
    ordered = sorted(options, key=lambda each: each.value)
    return tuple(
        TracedOption(
            each.action,
            market.ids[each.row],
            each.wait_s,
            round(each.cost_nano_usd),
            each.finish_s,
            math.exp(each.value - ordered[0].value),
        )
        for each in ordered[:MOST_OPTIONS]
    )


def _of_running(
    demand: Demand,
    market: Market,
    perf: PerfBook,
    running: Running,
    limits: MoveLimits,
    forecast: Forecast,
    ranking: Ranking,
    facts: tuple[tuple[str, str], ...],
) -> Trace:
    """The trace of a running job. The option that `decide` chose comes first, then the others in ranked order."""
    decided = decide([demand], market, perf, {demand.job.id: running}, limits=limits).placements[0]
    first = None if decided.offer_id is None else market.row(decided.offer_id)
    current, order = forecast.pool.current, ranking.order.tolist()
    rows = [row for row in dict.fromkeys([first, *order[: MOST_OPTIONS - 1], current]) if row is not None]
    stated = (*facts, ("decision", decided.reason))
    if current is None or ranking.mode != "safe" or ranking.rejection_reasons[current] != NONE:
        return _ranked(demand, forecast, ranking, market, stated, rows)
    moves = f"must gain {limits.move_margin:g} times their cost, and {limits.min_gain:.0%} of the cost of staying"
    objective = demand.job.spec.objective
    values = [
        1.0
        if row == current
        else math.exp(
            min(gate.burden(by, forecast, current, row, limits) for by in reasons_to_go(objective, ranking, row))
        )
        for row in rows
    ]
    return Trace(BY_GATE, (*stated, ("moves", moves)), _options(forecast, ranking, market, rows, values))


def _ranked(
    demand: Demand,
    forecast: Forecast,
    ranking: Ranking,
    market: Market,
    facts: tuple[tuple[str, str], ...],
    rows: Sequence[int] | None = None,
) -> Trace:
    objective = demand.job.spec.objective
    best = int(ranking.order[0])
    rows = ranking.order.tolist()[:MOST_OPTIONS] if rows is None else rows
    if ranking.mode == "likely":
        rule, values = BY_ODDS, [ranking.ranked_odds(best) / max(ranking.ranked_odds(row), 1e-9) for row in rows]
    elif ranking.mode == "late" or (objective.cost_weight == 0 and forecast.known):
        rule = BY_TIME if ranking.mode == "late" else NEAR
        values = [
            1.0 if ranking.near_earliest(row) else ranking.seconds(row) / ranking.earliest_s for row in rows
        ]  # finishes near the earliest count as equally early
    else:
        least = log_value(objective, *ranking.outlook.of(best))
        unknown = "" if forecast.known else " per step, because the job's length or speed is not known yet"
        rule = f"objective {objective.name}{unknown}"
        values = [math.exp(log_value(objective, *ranking.outlook.of(row)) - least) for row in rows]
    return Trace(rule, facts, _options(forecast, ranking, market, rows, values))


def _options(
    forecast: Forecast, ranking: Ranking, market: Market, rows: Sequence[int], values: Sequence[float]
) -> tuple[TracedOption, ...]:
    pool, found = forecast.pool, []
    for row, value in zip(rows, values, strict=True):
        cost, seconds = ranking.outlook.of(row)
        found.append(
            TracedOption(
                "stay" if row == pool.current else "start" if pool.current is None else "move",
                market.ids[row],
                0.0,
                round(cost) if forecast.known else None,
                seconds if forecast.known else None,
                value,
            )
        )
    return tuple(found)
