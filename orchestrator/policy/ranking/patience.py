"""Patience: whether a job that runs nowhere should wait for spot capacity to return instead of starting elsewhere.

Waiting is an option like any other: the offer that is awaited, with its cost to finish, later by the expected wait.
It is compared with the best offer that is open, and with running there until the awaited one is back: both pay for
another start and perhaps for egress there and back. A job that runs somewhere never stops in order to wait.

`cheapest` gives time a small weight, because an hour saved is worth something to everybody. The hours for which
capacity has been away already count, and so do those that the job has spent waiting, be it for other offers: where
outages were short before, the next hour would always seem worth waiting. No job waits for longer than all of it takes,
or for capacity that is away for longer: what was done already counts, because the last hour of a long job is not worth
a large checkpoint's way to another region.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np

from orchestrator.policy.demand import Demand
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.limits import budget_left, latest_start_s
from orchestrator.policy.ranking.objectives import log_value, patient
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.outages import MOST_WAIT, wait_seconds
from orchestrator.policy.ranking.pool import Floats
from orchestrator.policy.ranking.routes import Routes


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


@dataclass(frozen=True, slots=True)
class Weighed:
    """An option with its expected nano-USD and seconds to finish, and its log objective (`value`, smaller is better).

    "start" on the best open offer, "start and return" to the offer of `row` when it is back, or "wait" for it."""

    action: Literal["start", "start and return", "wait"]
    row: int
    wait_s: float
    cost_nano_usd: float
    finish_s: float
    value: float


def waiting(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> Wait | None:
    """What to wait for, if waiting is better than the best open offer of the ranking; None if it is not."""
    options = weighed(demand, forecast, ranking, filtered)
    best = min(options, key=attrgetter("value"), default=None)
    if best is None or best.action != "wait":
        return None
    instead = min((each for each in options if each.action != "wait"), key=attrgetter("value"))
    saving = instead.cost_nano_usd - best.cost_nano_usd
    return Wait(best.row, best.wait_s, best.cost_nano_usd, best.finish_s, int(ranking.order[0]), saving)


def weighed(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> list[Weighed]:
    """The options of a job that runs nowhere; empty if it has nothing to wait for, or waiting is out of the question:
    for `fastest`, where cost or time are not known, and if no open offer keeps its limits safely."""
    objective = demand.job.spec.objective
    rows = filtered.awaited
    if not rows.size or not forecast.known or objective.cost_weight == 0 or ranking.mode != "safe":
        return []
    best = int(ranking.order[0])
    both = forecast.over([best, *rows.tolist(), *ranking.outlook.others])
    pool, mid = both.pool, both.mid
    # By the time of a loss, the others may be back: which offer is open now must not make one seem better.
    cost, seconds = ranking.outlook.spreads(both, rows.tolist()).expected
    at = pool.at(best)
    away = np.array([pool.at(row) for row in rows.tolist()])
    wait_s = wait_seconds(pool.market, rows)
    away_s = np.maximum((pool.market.at - pool.market.away_since_ms[rows]) / 1000, demand.idle_s)
    kept = away_s + wait_s <= MOST_WAIT * forecast.whole * mid.seconds[at]
    if objective.time_weight == 0:
        kept &= cost[away] < cost[at]  # time counts against waiting, not for a faster machine
    if (latest_s := latest_start_s(demand, forecast, filtered)) is not None:
        kept &= wait_s <= latest_s
    if (left := budget_left(demand)) is not None:
        kept &= both.high.cost[away] <= left
    by = patient(objective)

    def option(
        action: Literal["start", "start and return", "wait"],
        row: int,
        later_s: float,
        dollars: float,
        finish_s: float,
        waited_s: float = 0.0,
    ) -> None:
        value = log_value(by, dollars, finish_s + waited_s)
        options.append(Weighed(action, row, later_s, dollars, finish_s, value))

    options: list[Weighed] = []
    option("start", best, 0.0, float(cost[at]), float(seconds[at]))
    ways_back = Routes(demand, pool.market).to_sites(pool.market.place(best), demand.checkpoint_bytes)
    found = (each[kept].tolist() for each in (rows, away, wait_s, away_s))
    for row, place, later_s, so_far_s in zip(*found, strict=True):
        egress = float(ways_back[pool.site[pool.cell[place]]])
        option("wait", row, later_s, float(cost[place]), float(seconds[place]) + later_s, so_far_s)
        option("start and return", row, later_s, *_there_and_back(both, cost, seconds, at, place, later_s, egress))
    return options


def _there_and_back(
    forecast: Forecast, whole: Floats, whole_s: Floats, there: int, back: int, away_s: float, egress: float
) -> tuple[float, float]:
    """(nano-USD, seconds) to finish if the job runs at one position of the pool until the other is back, then moves
    there; its checkpoint's way costs `egress` (nano-USD). `whole` and `whole_s` are those of finishing at one
    position."""
    pool, mid = forecast.pool, forecast.mid
    cell, home = int(pool.cell[there]), int(pool.cell[back])
    begin_s, run_s = float(forecast.begin_s[cell]), float(mid.run_s[cell])
    price_s = float(mid.price_s[there])
    share = min(max(away_s - begin_s, 0.0) / run_s, 1.0) if run_s > 0 else 1.0
    if share >= 1.0:
        return float(whole[there]), float(whole_s[there])
    way_there = price_s * float(forecast.move_billed_s[cell]) + float(forecast.move_fixed[cell])
    way_back = float(mid.price_s[back]) * float(pool.start_s[home]) + egress
    cost = way_there + share * (price_s * run_s + float(mid.run_charges[cell]))
    rest_s = float(mid.run_s[home])
    cost += way_back + (1 - share) * (float(mid.price_s[back]) * rest_s + float(mid.run_charges[home]))
    # What follows losses besides restarts is counted at either place, by its share of the work.
    cost += share * float(whole[there] - mid.cost[there]) + (1 - share) * float(whole[back] - mid.cost[back])
    later_s = share * float(whole_s[there] - mid.seconds[there]) + (1 - share) * float(
        whole_s[back] - mid.seconds[back]
    )
    return cost, max(away_s, begin_s) + (1 - share) * rest_s + later_s
