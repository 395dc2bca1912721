"""Patience: whether a job that runs nowhere should wait for spot capacity to return instead of starting elsewhere.

Waiting is an option like any other: the offer that is awaited, with its cost to finish, later by the expected wait.
It is compared with the best offer that is open, and with running there until the awaited one is back: both pay for
another start and perhaps for egress there and back. A job that runs somewhere never stops in order to wait.

`cheapest` gives time a small weight, because an hour saved is worth something to everybody, and no job waits for longer
than its own duration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.market import Market, expected_wait_s
from orchestrator.model import Objective
from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.cost import Floats, Forecast, Rows
from orchestrator.policy.ranking.eligible import Filtered, RejectionReason, only
from orchestrator.policy.ranking.objectives import Ranking, budget_left, latest_start_s, log_value

LEAST_TIME_WEIGHT = 0.1
"""The weight of time in the objective by which waiting is judged: with `cheapest`, an hour of waiting must save more
than a ninth of what an hour of the job costs."""
MOST_WAIT = 1.0
"""The longest expected wait, as a share of the time to finish on the open offer. (An outage that lasts is expected to
last longer, so that waiting ends.)"""
MOST_AWAITED = 16  # of the offers without capacity, those with the lowest prices


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting for the offer of `row`, whose capacity is expected back in `seconds`. `cost_nano_usd` and `finish_s` are
    what finishing there is then expected to cost, and when (in seconds from now); `saving_nano_usd` is relative to
    `instead`, the best open offer (None: there is none)."""

    row: int
    seconds: float
    cost_nano_usd: float
    finish_s: float
    instead: int | None
    saving_nano_usd: float


def waiting(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> Wait | None:
    """What to wait for, if waiting is better than the best open offer of the ranking; None if it is not."""
    objective = demand.job.spec.objective
    rows = awaited_rows(filtered)
    if not rows.size or not forecast.known or objective.cost_weight == 0 or ranking.mode != "safe":
        return None
    best = int(ranking.order[0])
    both = forecast.over([best, *rows.tolist()])
    pool, mid = both.pool, both.mid
    at = pool.at(best)
    away = np.array([pool.at(row) for row in rows.tolist()])
    wait_s = wait_seconds(pool.market, rows)
    kept = wait_s <= MOST_WAIT * mid.seconds[at]
    if (latest_s := latest_start_s(demand, forecast, filtered)) is not None:
        kept &= wait_s <= latest_s
    if (left := budget_left(demand)) is not None:
        kept &= both.high.cost[away] <= left
    by = patient(objective)
    now = log_value(by, float(mid.cost[at]), float(mid.seconds[at]))
    found: Wait | None = None
    for row, place, later_s in zip(rows[kept].tolist(), away[kept].tolist(), wait_s[kept].tolist(), strict=True):
        cost, finish_s = float(mid.cost[place]), float(mid.seconds[place]) + later_s
        value = log_value(by, cost, finish_s)
        there_and_back = _there_and_back(both, at, place, later_s)
        bar = min(now, log_value(by, *there_and_back))
        if value < bar and (found is None or value < log_value(by, found.cost_nano_usd, found.finish_s)):
            instead = min(float(mid.cost[at]), there_and_back[0])
            found = Wait(row, later_s, cost, finish_s, best, instead - cost)
    return found


def patient(objective: Objective) -> Objective:
    """The objective by which waiting is judged: the job's own, with at least LEAST_TIME_WEIGHT for time."""
    time = max(objective.time_weight, LEAST_TIME_WEIGHT)
    return Objective(1 - time, time)


def awaited_rows(filtered: Filtered) -> Rows:
    """The spot rows that only lack capacity now: those with the lowest prices."""
    if not filtered.counts[RejectionReason.NO_CAPACITY]:
        return np.zeros(0, np.int64)
    market = filtered.market
    rows = np.flatnonzero(only(filtered.rejection_reasons, RejectionReason.NO_CAPACITY) & market.priced & market.spot)
    return rows[np.argsort(market.price[rows], kind="stable")[:MOST_AWAITED]]


def wait_seconds(market: Market, rows: Rows) -> Floats:
    """Market seconds until a launch in each of some spot rows is expected to succeed."""
    spot = market.spot
    return expected_wait_s(
        rows,
        at_ms=market.at,
        group=market.listing.site_provider[market.listing.site],
        returns=np.where(spot, market.returns, 0),
        away_ms=np.where(spot, market.away_ms, 0),
        last_sign_ms=market.backed_off_at,
        until_ms=market.backed_off_until,
    )


def _there_and_back(forecast: Forecast, there: int, back: int, away_s: float) -> tuple[float, float]:
    """(nano-USD, seconds) to finish if the job runs at one position of the pool until the other is back, then moves.

    The way back is taken to cost as much as the way there.
    """
    pool, mid = forecast.pool, forecast.mid
    cell, home = int(pool.cell[there]), int(pool.cell[back])
    begin_s, run_s = float(forecast.begin_s[cell]), float(mid.run_s[cell])
    price_s = float(mid.price_s[there])
    share = min(max(away_s - begin_s, 0.0) / run_s, 1.0) if run_s > 0 else 1.0
    stay = float(mid.cost[there]), float(mid.seconds[there])
    if share >= 1.0:
        return stay
    way_there = price_s * float(forecast.move_billed_s[cell]) + float(forecast.move_fixed[cell])
    egress = float(forecast.move_fixed[cell])
    way_back = float(mid.price_s[back]) * float(pool.start_s[home]) + egress
    cost = way_there + share * (price_s * run_s + float(mid.run_charges[cell]))
    rest_s = float(mid.run_s[home])
    cost += way_back + (1 - share) * (float(mid.price_s[back]) * rest_s + float(mid.run_charges[home]))
    return cost, max(away_s, begin_s) + (1 - share) * rest_s
