"""Patience: whether a job that is not running should wait for spot capacity to return instead of starting elsewhere.

Waiting is an option like any other: finishing on the awaited offer at its cost, later by the expected wait. It is
compared with two others: finishing on the best open offer; and running there until the first loss and then on the
awaited offer, which costs another start and perhaps egress in both directions. If no open offer can meet the deadline,
it is compared with the earliest finish that the budget pays for. A running job never stops in order to wait. Waits
after later losses are decided when they happen, by the same rule on every offer, so no option includes them.

`cheapest` gives time a small weight, because an hour saved always has some value. Time already lost counts: the hours
for which capacity has been away, and those that the job has waited, also for other offers. Otherwise, if past outages
were short, waiting another hour would always seem worthwhile. No job waits longer than all of its work takes, or for
capacity that is away for longer. All of its work includes finished work, because the last hour of a long job does not
justify moving a large checkpoint to another region.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from orchestrator.policy.demand import TIME_TOLERANCE, Demand
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import Filtered
from orchestrator.policy.ranking.interruptions import before_a_loss
from orchestrator.policy.ranking.limits import budget_left, latest_start_s
from orchestrator.policy.ranking.objectives import log_value, patient
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.outages import MOST_WAIT, wait_seconds
from orchestrator.policy.ranking.routes import Routes


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting for the offer of `row`, whose capacity is expected to return in `seconds`.

    `cost_nano_usd` and `finish_s` (seconds from now) are expected for waiting and then finishing there.
    `saving_nano_usd` and `sooner_s` are relative to `instead`, the best open offer (None: there is none). `late`: no
    open offer meets the deadline.
    """

    row: int
    seconds: float
    cost_nano_usd: float
    finish_s: float
    instead: int | None
    saving_nano_usd: float
    sooner_s: float = 0.0
    late: bool = False


@dataclass(frozen=True, slots=True)
class Weighed:
    """An option with its expected nano-USD and seconds to finish, and its log objective (`value`, smaller is better).

    "start" on the best open offer, "start and return" to the offer of `row` after the first loss, or "wait" for the
    offer of `row`.
    """

    action: Literal["start", "start and return", "wait"]
    row: int
    wait_s: float
    cost_nano_usd: float
    finish_s: float
    value: float


def waiting(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> Wait | None:
    """The offer to wait for, if waiting is better than starting on the best open offer; None if it is not."""
    if ranking.mode == "late":
        return _for_an_earlier_finish(demand, forecast, ranking, filtered)
    options = weighed(demand, forecast, ranking, filtered)
    best = min(options, key=attrgetter("value"), default=None)
    if best is None or best.action != "wait":
        return None
    instead = min((each for each in options if each.action != "wait"), key=attrgetter("value"))
    saving = instead.cost_nano_usd - best.cost_nano_usd
    sooner_s = instead.finish_s - best.finish_s
    return Wait(best.row, best.wait_s, best.cost_nano_usd, best.finish_s, int(ranking.order[0]), saving, sooner_s)


def _for_an_earlier_finish(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> Wait | None:
    """The offer to wait for, if the job then finishes sooner than on the best open offer; None if it does not."""
    rows, best = filtered.awaited, int(ranking.order[0])
    if not rows.size or not forecast.known:
        return None
    both = forecast.over([best, *rows.tolist(), *ranking.outlook.others])
    pool, left = both.pool, budget_left(demand)
    cost, seconds = ranking.outlook.spreads(both, rows.tolist()).expected
    away = np.array([pool.at(row) for row in rows.tolist()])
    wait_s = wait_seconds(pool.market, rows)
    finish_s = np.where((left is None) | (both.high.cost[away] <= (left or 0)), seconds[away] + wait_s, np.inf)
    soonest, at = int(finish_s.argmin()), pool.at(best)
    if finish_s[soonest] * (1 + TIME_TOLERANCE) >= seconds[at]:
        return None
    row, place = int(rows[soonest]), int(away[soonest])
    saving, sooner_s = float(cost[at] - cost[place]), float(seconds[at] - finish_s[soonest])
    found = (row, float(wait_s[soonest]), float(cost[place]), float(finish_s[soonest]))
    return Wait(*found, best, saving, sooner_s, late=True)


def weighed(demand: Demand, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> list[Weighed]:
    """The options of a job that is not running.

    Empty if there is nothing to wait for, or if the job may not wait: for `fastest`, if cost or time are not known, or
    if no open offer meets the limits safely.
    """
    objective = demand.job.spec.objective
    rows = filtered.awaited
    if not rows.size or not forecast.known or objective.cost_weight == 0 or ranking.mode != "safe":
        return []
    best = int(ranking.order[0])
    both = forecast.over([best, *rows.tolist(), *ranking.outlook.others])
    pool, mid = both.pool, both.mid
    # By the time of a loss, the others may be back: being open now must not make an offer seem better.
    cost, finish_s = ranking.outlook.spreads(both, rows.tolist()).expected
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
        course: _Course,
        waited_s: float = 0.0,
    ) -> None:
        value = log_value(by, course.cost, course.seconds + waited_s)
        options.append(Weighed(action, row, later_s, course.cost, course.seconds + course.waits_s, value))

    def course(place: int) -> _Course:
        cell = int(pool.cell[place])
        way = float(mid.price_s[place]) * float(both.move_billed_s[cell]) + float(both.move_fixed[cell])
        seconds, losses = float(mid.seconds[place]), float(mid.losses[cell])
        waits_s = float(finish_s[place]) - seconds
        return _Course(float(cost[place]), seconds, waits_s, way, float(both.begin_s[cell]), before_a_loss(losses))

    options: list[Weighed] = []
    start = course(at)
    option("start", best, 0.0, start)
    way_back = Routes(demand, pool.market).to_sites(pool.market.place(best), demand.checkpoint_bytes)
    found = (each[kept].tolist() for each in (rows, away, wait_s, away_s))
    for row, place, later_s, so_far_s in zip(*found, strict=True):
        there = course(place)
        option("wait", row, later_s, there._replace(seconds=there.seconds + later_s), so_far_s)
        option("start and return", row, later_s, start.then(there, float(way_back[pool.site[pool.cell[place]]])))
    return options


class _Course(NamedTuple):
    """The course of a job at one offer: nano-USD and seconds to finish, without the later waits for capacity
    (`waits_s`).

    Of these, getting there costs `way` and takes `begin_s`. `share` is the share of the work done before the first
    loss.
    """

    cost: float
    seconds: float
    waits_s: float
    way: float
    begin_s: float
    share: float

    def then(self, other: _Course, egress: float) -> _Course:
        """This course until the first loss, then the other one, to whose offer the checkpoint goes for `egress`
        (nano-USD). A restart after the loss is in both."""
        share, rest = self.share, 1 - self.share
        return self._replace(
            cost=self.way + share * (self.cost - self.way) + egress + rest * (other.cost - other.way),
            seconds=self.begin_s + share * (self.seconds - self.begin_s) + rest * (other.seconds - other.begin_s),
            waits_s=share * self.waits_s + rest * other.waits_s,
        )
