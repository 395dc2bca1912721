"""Compare: every offer's figures for a job, what other objectives would choose, and the Pareto front of cost and time.

Uses the same filter, forecast and ranking as `decide`, but decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.formats.readable import span
from orchestrator.market import Market, of_machines
from orchestrator.model import CHEAPEST, FASTEST, Estimate, JobSpec, Objective, Pick
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.explanation.explain import topic, why_unfit
from orchestrator.policy.ranking.cost import Forecast, forecast_of
from orchestrator.policy.ranking.eligible import NONE, Filter, Filtered, RejectionReason
from orchestrator.policy.ranking.order import Ranking, rank, standing
from providers.money import format_usd

BALANCED = Objective(0.5, 0.5)
MOST_POINTS = 12

_Point = tuple[int, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Prospect:
    """An offer that a job can use.

    `steps_per_s` and `nano_usd_per_step` are expected values; `duration_s` and the costs are until the job is finished
    (None if the number of steps is not known), the cost with its 90 % interval. If there is no evidence of the job's
    speed, `relative_speed` compares the offer with a fixed machine (None otherwise).
    """

    offer_id: str
    steps_per_s: float | None
    nano_usd_per_step: float | None
    duration_s: float | None
    cost_nano_usd: int | None
    cost_low_nano_usd: int | None
    cost_high_nano_usd: int | None
    relative_speed: Estimate | None
    standing: tuple[float, ...]  # smaller is better; for one job also comparable between markets


@dataclass(frozen=True, slots=True)
class Comparison:
    """`front`: the Pareto front of cost and time of the offers that the budget pays for, cheapest first; `picks`: the
    choice for each objective."""

    front: tuple[Pick, ...]
    picks: tuple[Pick, ...]

    def as_planned(self, offer_id: str, cost_nano_usd: int, duration_s: float) -> Comparison:
        """This comparison with the plan's cost and duration for the offer that the plan names. Unlike the figures here,
        they include the deadline, the wait for capacity, and the offers that the job may use after a loss."""

        def planned(pick: Pick) -> Pick:
            own = pick.offer_id == offer_id
            return replace(pick, cost_nano_usd=cost_nano_usd, duration_s=duration_s) if own else pick

        front: list[Pick] = []
        for pick in sorted(map(planned, self.front), key=_cost_and_time):
            if not front or _cost_and_time(pick)[1] < _cost_and_time(front[-1])[1]:
                front.append(pick)
        return Comparison(tuple(front), tuple(map(planned, self.picks)))


def cheapest(spec: JobSpec, market: Market, count: int, *, limits: MoveLimits) -> list[str]:
    """The ids of the `count` offers with the lowest price per hour that a job may use, regardless of the cost per step.

    Offers with equal prices are ordered by id.
    """
    rows = np.flatnonzero(Filter(market, limits)(spec, None).rejection_reasons == NONE)
    price = market.price[rows]
    if len(rows) > count:
        near = price <= np.partition(price, count - 1)[count - 1]
        rows, price = rows[near], price[near]
    return [market.ids[row] for row in rows[np.argsort(price, kind="stable")][:count].tolist()]


def ruled_out(spec: JobSpec, market: Market, row: int, *, home: str) -> str:
    """Why an offer can never be used by a job that runs at the provider `home`; empty if it can.

    Only fixed properties of the offer count: GPU, memory, CPUs, cloud, region, capacity type, and whether it is
    simulated.
    """
    rejection_reason = int(Filter(market, MoveLimits())(spec, None, home=home).rejection_reasons[row])
    return (
        why_unfit(spec, market, RejectionReason(rejection_reason), row)
        if NONE < rejection_reason <= RejectionReason.OTHER_MARKET
        else ""
    )


def prospects(
    demand: Demand, market: Market, perf: PerfBook, *, limits: MoveLimits
) -> tuple[list[Prospect], Mapping[str, int]]:
    """(the offers that the job can use, in the order of `decide`; the number of offers that each constraint rejects).

    Offers that miss a limit come last.
    """
    market = of_machines(market, demand.nodes)
    filtered = _filtered(demand, market, perf, limits)
    forecast = forecast_of(demand, filtered.pool, perf, None)
    ranking = rank(demand, forecast, filtered)
    positions, standings = standing(ranking, filtered)
    rows = filtered.pool.rows[positions].tolist()
    found = ranking.outlook.spreads(forecast).going(filtered.usable)
    columns = (forecast.over_rows(forecast.rate), forecast.per_step, found.mid_s)
    rate, per_step, seconds = (column[positions].tolist() for column in columns)
    low, mid, high = (cost[positions].tolist() for cost in (found.low_cost, found.mid_cost, found.high_cost))
    reported = [
        Prospect(
            market.ids[row],
            rate[i] if forecast.speed_known else None,
            per_step[i] if forecast.speed_known else None,
            seconds[i] if forecast.known else None,
            round(mid[i]) if forecast.known else None,
            round(low[i]) if forecast.known else None,
            round(high[i]) if forecast.known else None,
            None if forecast.speed_known else forecast.relative_speed(row),
            standings[i],
        )
        for i, row in enumerate(rows)
    ]
    return reported, {topic(rejection_reason): count for rejection_reason, count in filtered.counts.items() if count}


def compare(demand: Demand, market: Market, perf: PerfBook, *, limits: MoveLimits) -> Comparison | None:
    """The Pareto front, and the choices for five goals: cheapest, fastest, cost x time, a deadline and a budget.

    Deadline and budget are the job's own, or the geometric mean of the values of the cheapest and the fastest offer. If
    the job has a budget, it applies to all goals, because no objective may exceed it. None if no offer fits or the
    number of steps is not known.
    """
    market = of_machines(market, demand.nodes)
    filtered = _filtered(demand, market, perf, limits)
    forecast = forecast_of(demand, filtered.pool, perf, None)
    if not forecast.known or not filtered.usable.any():
        return None
    spec = demand.job.spec
    free = replace(spec, deadline_s=None, deadline_at_ms=None, budget_nano_usd=None)
    cheap = _best(_wanting(demand, replace(free, objective=CHEAPEST)), forecast, filtered)
    fast = _best(_wanting(demand, replace(free, objective=FASTEST)), forecast, filtered)
    assert cheap is not None  # without limits, any usable offer fits
    assert fast is not None
    high, ends = forecast.high, [forecast.pool.at(row) for row, _ in (cheap, fast)]
    between_s = math.sqrt(high.seconds[ends[0]] * high.seconds[ends[1]])
    between = round(math.sqrt(high.cost[ends[0]] * high.cost[ends[1]]))
    deadline_ms = demand.job.deadline_at_ms or market.at + round(between_s * 1000)
    budget = spec.budget_nano_usd or between + demand.spent_nano_usd
    left_s = (deadline_ms - market.at) / 1000
    paid = replace(free, budget_nano_usd=spec.budget_nano_usd)
    wanted = {
        "cheapest": replace(paid, objective=CHEAPEST),
        "fastest": replace(paid, objective=FASTEST),
        "cost x time": replace(paid, objective=BALANCED),
        f"cheapest within {span(left_s)}": replace(paid, objective=CHEAPEST, deadline_at_ms=deadline_ms),
        f"fastest for {format_usd(budget)}": replace(free, objective=FASTEST, budget_nano_usd=budget),
    }
    picks = [_pick(name, market, _best(_wanting(demand, each), forecast, filtered)) for name, each in wanted.items()]
    ranking = rank(_wanting(demand, paid), forecast, filtered)
    return Comparison(tuple(_pick("", market, each) for each in _front(ranking, filtered)), tuple(picks))


def _filtered(demand: Demand, market: Market, perf: PerfBook, limits: MoveLimits) -> Filtered:
    shortfalls = perf.shortfalls(demand.job, market.listing.kinds)
    return Filter(market, limits)(
        demand.job.spec, None, shortfalls=shortfalls, setup_s=demand.setup_s, rent=demand.rent
    )


def _wanting(demand: Demand, spec: JobSpec) -> Demand:
    return replace(demand, job=replace(demand.job, spec=spec))


def _best(demand: Demand, forecast: Forecast, filtered: Filtered) -> _Point | None:
    """The chosen row with its nano-USD and seconds as shown; None if no offer can meet the limits."""
    ranking = rank(demand, forecast, filtered)
    row = int(ranking.order[0]) if ranking.mode in ("safe", "likely") else None
    return None if row is None else (row, ranking.outlook.of(row))


def _front(ranking: Ranking, filtered: Filtered) -> list[_Point]:
    """The rows of the Pareto front that are not rejected, cheapest first. If there are more than MOST_POINTS, an evenly
    spaced selection that includes both ends."""
    positions = filtered.usable_at
    positions = positions[ranking.rejection_reasons[ranking.pool.rows[positions]] == NONE]
    if not positions.size:
        return []
    ranking.outlook.look_at(positions)
    cost, seconds = ranking.outlook.cost[positions], ranking.outlook.seconds[positions]
    order = np.lexsort((seconds, cost))
    fastest = np.minimum.accumulate(seconds[order])
    leads = np.concatenate(([True], seconds[order][1:] < fastest[:-1]))
    front = positions[order[leads]]
    if len(front) > MOST_POINTS:
        front = front[np.unique(np.linspace(0, len(front) - 1, MOST_POINTS).round().astype(int))]
    return [(row, ranking.outlook.of(row)) for row in ranking.pool.rows[front].tolist()]


def _cost_and_time(pick: Pick) -> tuple[int, float]:
    assert pick.cost_nano_usd is not None  # both are known for rows of the front
    assert pick.duration_s is not None
    return pick.cost_nano_usd, pick.duration_s


def _pick(objective: str, market: Market, point: _Point | None) -> Pick:
    if point is None:
        return Pick(objective, None, None, None)
    row, (cost, seconds) = point
    return Pick(objective, market.ids[row], round(cost), seconds)
