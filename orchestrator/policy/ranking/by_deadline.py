"""The cheapest way to meet a deadline: asks the planner (policy/slack) what a job should do now.

A job that only has to finish in time can wait for spot capacity, run on spot and lose its machine, or rent on-demand.
The value of each choice depends on the time to spare. The planner's value table gives these values for a few offers:
the spot offers that cost least per step, including those without capacity, and two on-demand offers. These are the
cheapest one that finishes in time, and the cheapest one that needs at most half of the time (or else the fastest).

Every open offer considered here already meets the deadline safely (limits.py). The planner only ranks them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.limits import budget_left, latest_start_s, time_left_s
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.outages import mean_outages_h, wait_seconds
from orchestrator.policy.ranking.patience import Wait
from orchestrator.policy.ranking.routes import Routes
from orchestrator.policy.slack.grid import TOO_LATE
from orchestrator.policy.slack.known import KnownSpells, PoolRates
from orchestrator.policy.slack.planner import Action, Planner
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.slack.spells import Spells
from orchestrator.policy.slack.value import ValueTable
from providers.money import NANO_USD

MOST_OPEN, MOST_SHUT = 2, 2
"""How many spot offers are considered: with capacity, without capacity."""
TICK_H = 0.25
"""How often a live job can act, in hours: a back-off takes as long."""
KEPT_BACK = 0.02
"""The share of the work's time that is reserved for unforeseen delays."""
PRICE_STEP, RATE_STEP, TIME_STEP = 1.05, 1.3, 2.0
"""Factors to which prices, rates and times are rounded before a table is solved, so that similar jobs share one."""
SPOT_STEP = 1.01
"""The same factor for spot prices. It is finer, because over the rest of a long job, a difference caused only by
rounding would seem to pay for egress."""
TABLE_STEPS = 32
"""The number of time steps in a table. Compared with a thousand steps, the values differ by 1 % (root mean square over
random problems of up to 600 h), because the table accounts for what happens within long steps
(policy/slack/long_steps)."""
TABLES = 32  # of up to 2.5 MB each


@dataclass(frozen=True, slots=True)
class Choice:
    """A possible action: "wait", "stay", or start on "spot" or "on_demand" with the offer of `row`.

    `cost_nano_usd` is the expected cost to finish if the job does this now and makes the best decisions after that.
    """

    action: Action
    row: int | None
    cost_nano_usd: float


def choices(
    demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered, limits: MoveLimits
) -> list[Choice]:
    """The actions that the job can take now, best first.

    Empty if the planner does not apply, so that the order of the objective is enough: there is no deadline, time counts
    in the objective, no on-demand offer meets the deadline safely, or no spot offer lacks capacity.

    A running job does not stop in order to wait. A job that rents on-demand stays there for as long as the `limits`
    say.
    """
    left_s = time_left_s(demand, forecast)
    if left_s is None or ranking.mode != "safe" or demand.job.spec.objective.time_weight > 0:
        return []
    latest_s = latest_start_s(demand, forecast, filtered)
    if forecast.steps_left <= 0 or latest_s is None:
        return []
    shut = _shut(forecast, filtered)
    bought = _bought(forecast, ranking, filtered, left_s) if shut else []
    if not bought:
        return []
    open_spot = [row for row in ranking.order.tolist() if filtered.market.spot[row]][:MOST_OPEN]
    current = filtered.current
    rows = list(dict.fromkeys([*open_spot, *shut, *bought, *([] if current is None else [current])]))
    case = _Case(demand, forecast.over(rows), rows, bought[0], current)
    planner = Planner(case.terms(limits.min_dwell_s / 3600), KnownSpells(case.rates, TICK_H), similar)
    found = []
    for option in planner.options(case.situation(left_s)):
        row = None if option.pool is None else rows[option.pool]
        if option.usd >= TOO_LATE * planner.unit_usd or (
            option.action == "wait" and (current is not None or latest_s < TICK_H * 3600)
        ):
            continue
        if option.action == "stay" or row not in shut:
            found.append(Choice(option.action, row, option.usd * NANO_USD))
    return found


def wait_of(found: Sequence[Choice], forecast: Forecast, filtered: Filtered) -> Wait | None:
    """The offer that the job waits for, if waiting is its best choice; None otherwise."""
    if not found or found[0].action != "wait":
        return None
    shut = _shut(forecast, filtered)
    instead = next((each for each in found if each.row is not None), None)
    over = forecast.over(shut)
    wait_s = wait_seconds(over.pool.market, np.array(shut))
    soonest = int(np.argmin(wait_s))
    finish_s = float(over.mid.seconds[over.pool.at(shut[soonest])]) + float(wait_s[soonest])
    cost = found[0].cost_nano_usd
    saving = 0.0 if instead is None else instead.cost_nano_usd - cost
    return Wait(shut[soonest], float(wait_s[soonest]), cost, finish_s, None if instead is None else instead.row, saving)


def _bought(forecast: Forecast, ranking: Ranking, filtered: Filtered, left_s: float) -> list[int]:
    """The on-demand rows to consider, fastest first; empty if none meets the deadline safely."""
    pool, high_s = forecast.pool, forecast.high.seconds
    safe = np.flatnonzero(filtered.usable & ~pool.spot & (ranking.tiers == ranking.tiers.max()) & (high_s <= left_s))
    if not safe.size:
        return []
    cost = forecast.mid.cost[safe]
    cheapest = int(safe[np.argmin(cost)])
    quick = safe[high_s[safe] <= left_s / 2]
    fast = int(quick[np.argmin(forecast.mid.cost[quick])]) if quick.size else int(safe[np.argmin(high_s[safe])])
    if high_s[cheapest] <= high_s[fast]:
        fast = cheapest
    return [int(pool.rows[each]) for each in dict.fromkeys((fast, cheapest))]


def _shut(forecast: Forecast, filtered: Filtered) -> list[int]:
    """The spot rows without capacity to consider, those that cost least per step first."""
    rows = filtered.awaited.tolist()
    if not rows:
        return []
    over, left = forecast.over(rows), budget_left(forecast.demand)
    paid = [row for row in rows if left is None or over.high.cost[over.pool.at(row)] <= left]
    return sorted(paid, key=lambda row: float(over.per_step[over.pool.at(row)]))[:MOST_SHUT]


class _Case:
    """A job and a few offers, in the planner's terms.

    Pools are numbered as `rows`. If the checkpoint is elsewhere, its place is one more pool at the end. Work is counted
    in hours on the fast on-demand offer, at its 5th percentile of speed.
    """

    def __init__(self, demand: Demand, forecast: Forecast, rows: Sequence[int], fast: int, current: int | None) -> None:
        self._demand, self._forecast, self._rows, self._current = demand, forecast, rows, current
        pool, market = forecast.pool, forecast.pool.market
        self._market = market
        at = [pool.at(row) for row in rows]
        cells = pool.cell[at]
        work_s = forecast.work_range_s[1][cells]
        self._work_h = float(work_s[rows.index(fast)]) / 3600
        pace = work_s[rows.index(fast)] / work_s
        # A machine faster than that counts as equally fast, at the price of the same amount of work.
        self._speed = tuple(min(round(float(each), 3), 1.0) or 0.001 for each in pace)
        price_usd = forecast.mid.price_s[at] * 3600 / NANO_USD / np.maximum(pace, 1.0)
        self._usd = tuple(price_usd.tolist())
        self._spot = [bool(market.spot[row]) for row in rows]
        self._restart_h = float(pool.start_high_s[cells].max()) / 3600
        places = [market.place(row) for row in rows]
        lies_at = demand.checkpoint_at if current is None else places[rows.index(current)]
        self._elsewhere = int(lies_at is not None and lies_at not in places)  # 1: no considered offer is there
        self._places = [*places, lies_at] if lies_at is not None and self._elsewhere else places
        self._at = None if lies_at is None else self._places.index(lies_at)
        outages_h = mean_outages_h(market, np.array(rows)).tolist()
        self.rates = [*map(self._rates, rows, outages_h), *[PoolRates(1.0, 1.0)] * self._elsewhere]

    def terms(self, dwell_h: float) -> Terms:
        """The planner's terms, if a job stays for `dwell_h` hours where it has moved to."""
        count = len(self._rows)
        none = frozenset(range(count, count + self._elsewhere))
        spot = frozenset(number for number in range(count) if self._spot[number])
        return Terms(
            restart_h=self._restart_h,
            tick_h=TICK_H,
            on_demand_usd=(*self._usd, *(0.0 for _ in none)),
            egress_usd=self._egress_usd(),
            speed=(*self._speed, *(1.0 for _ in none)),
            only_spot=spot | none,
            only_on_demand=frozenset(range(count)) - spot | none,
            kept_h=self._restart_h + dwell_h,
        )

    def situation(self, left_s: float) -> Situation:
        """The planner's situation; `left_s` is the time until the deadline."""
        here = None if self._current is None else self._rows.index(self._current)
        return Situation(
            now_h=0.0,
            ticks_left=max(math.floor((left_s / 3600 - KEPT_BACK * self._work_h) / TICK_H), 1),
            work_h=self._work_h,
            running=None if here is None else (here, self._spot[here]),
            overhead_left_h=0.0,
            at=self._at,
            spot_usd=(*self._usd, *(0.0,) * self._elsewhere),
        )

    def _egress_usd(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """US$ for moving the checkpoint, by the place where it is (row) and the place of the launch (column)."""
        size, market, count = self._demand.checkpoint_bytes, self._market, len(self._places)
        if not size:
            return np.zeros((count, count))
        sites, routes = market.listing.site[self._rows], Routes(self._demand, market)
        columns = {place: routes.to_sites(place, size, sites) / NANO_USD for place in set(self._places)}
        egress = np.zeros((count, count))
        for number, place in enumerate(self._places):
            egress[number, : len(self._rows)] = columns[place]
        return egress

    def _rates(self, row: int, outage_h: float) -> PoolRates:
        market = self._market
        if not market.spot[row]:
            return PoolRates(1.0, 1.0)
        sign_ms = int(market.backed_off_at[row])
        there = False if sign_ms >= 0 else True if row == self._current or row in market.alive else None
        ago_h = (market.at - sign_ms) / 3.6e6 if sign_ms >= 0 else 0.0
        return PoolRates(1 / outage_h, max(float(market.hazard[row]), 1e-6), there, ago_h)


def similar(problem: Problem, spells: Spells) -> ValueTable:
    """The table of a similar problem, with rounded figures. It depends on nothing else, such as earlier calls."""
    work_h = _up(problem.hours_left - problem.slack_h, TIME_STEP)
    slack_h = _up(max(problem.slack_h, problem.restart_h), TIME_STEP)
    return solved(
        tuple(tuple(_about(each, PRICE_STEP) for each in row) for row in problem.egress_usd.tolist()),
        tuple(
            PoolRates(_about(float(returns[0]), RATE_STEP), _about(float(losses[0]), RATE_STEP))
            for returns, losses in map(spells.ends, range(spells.pools))
        ),
        hours_left=work_h + slack_h,
        slack_h=slack_h,
        tick_h=problem.tick_h,
        restart_h=_about(problem.restart_h, PRICE_STEP),
        pools=problem.pools,
        spot_usd=tuple(_about(each, SPOT_STEP) for each in problem.spot_usd),
        speed=problem.speed,
        on_demand_pools=problem.on_demand_pools,
        on_demand_usd=tuple(_about(each, PRICE_STEP) for each in problem.on_demand_usd),
        on_demand_speed=problem.on_demand_speed,
        at=problem.at,
    )


@lru_cache(maxsize=TABLES)
def solved(egress_usd: tuple[tuple[float, ...], ...], rates: tuple[PoolRates, ...], **rest: Any) -> ValueTable:
    """The table of the problem with this egress; `rest` are its other fields."""
    problem = Problem(egress_usd=np.array(egress_usd), **rest)
    return ValueTable(problem, KnownSpells(rates, problem.tick_h), TABLE_STEPS)


def _about(value: float, step: float) -> float:
    """A value rounded to a power of `step`; 0 stays 0."""
    return 0.0 if value <= 1e-9 else step ** round(math.log(value) / math.log(step))


def _up(value: float, step: float) -> float:
    """A value rounded up to a power of `step`."""
    return float(step ** math.ceil(math.log(max(value, 1e-3)) / math.log(step) - 1e-9))
