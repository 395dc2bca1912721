"""The gate for voluntary moves: a job stays unless a move pays for itself, with a margin, for as long as it lasts.

A move is judged over the rest of the work, but at most over the part that staying would finish in a day, because prices
change too much to look further ahead. For that share of the work, staying must cost more than the target plus
`move_margin` times the cost of moving (both machines billed during start-up, the gap in training, egress), by
`min_gain`. The machines that the job is expected to lose count on both sides (each costs a start-up, repeated work and
egress: cost.py), so they do not shorten this horizon.

In addition, a move must save its bare cost and `least_saving` before a loss is likely, so every move promises a saving.
It must also take less time than the work that is left.

This follows Karpenter's balanced consolidation (savings weighed against disruption). Its spot consolidation RFC
describes what happens without it: a job moves down the price ladder from one interruption to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.market.cached_property import cached_property
from orchestrator.model import Objective
from orchestrator.policy.demand import MoveLimits, Running
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.interruptions import before_a_loss
from orchestrator.policy.ranking.objectives import log_value
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.routes import Routes

_DAY_S = 86_400.0


def held_back(running: Running, at_ms: int, limits: MoveLimits, *, probe_until_ms: int | None = None) -> str:
    """Why no voluntary move may be made now; empty if one may. A job on a probe stays until `probe_until_ms` (market
    ms), and may move after that."""
    if probe_until_ms is not None:
        return (
            f"is on a probe here for {(probe_until_ms - running.since_ms) / 60_000:.0f} min"
            if at_ms < probe_until_ms
            else ""
        )
    if at_ms < settled_ms(running, limits):
        return f"has been here for less than {limits.min_dwell_s / 60:.0f} min"
    if running.migrations_today >= limits.max_migrations_per_day:
        return f"has moved {running.migrations_today} times today"
    return ""


def settled_ms(running: Running, limits: MoveLimits) -> int:
    """The market time (ms) from which a job has been on its machine long enough to move again."""
    return max(running.last_migration_ms or 0, running.since_ms) + round(limits.min_dwell_s * 1000)


class _Test(NamedTuple):
    """A test that a move must pass: over `share` of the work, staying must cost more than the target plus `margin`
    times the move, by the share `least_gain` and the amount `least_saving` (nano-USD)."""

    share: float
    margin: float
    least_gain: float
    least_saving: int


class _Move:
    """A move from one row to another. Its figures are computed once and kept with the forecast."""

    def __init__(self, forecast: Forecast, stay: int, go: int) -> None:
        self.forecast, self.here, self.there = forecast, forecast.figures(stay), forecast.figures(go)
        left_s = self.here.run_s
        self.day = min(1.0, _DAY_S / left_s) if left_s > 0 else 1.0  # the share of the work done in a day of staying
        self._costs: dict[float, _Costs] = {}

    @classmethod
    def of(cls, forecast: Forecast, stay: int, go: int) -> _Move:
        """The move between two rows of the forecast's pool."""
        known = forecast.moves.get((stay, go))
        if known is None:
            known = forecast.moves[stay, go] = cls(forecast, stay, go)
        return known

    @cached_property
    def lateness(self) -> float:
        """The logarithm of the time until the job trains at the target, relative to the time that the remaining work
        takes on its present machine. If it is positive, the move takes longer than the work."""
        return math.log(max(self.there.move_billed_s, 1e-3) / max(self.here.run_s, 1e-3))

    @cached_property
    def lasts(self) -> float:
        """The share of the work within which a move must have paid for itself.

        - From spot: until the first loss of either machine, and a day at most. After a loss, the job goes to the best
          offer at that time, whether it has moved or not.
        - From on-demand to spot, with a deadline: until the first loss, because the job may have to go back then.
        - From on-demand to spot, without a deadline: a day at most.
        - Between machines that are not lost: all of the work.
        """
        stays, goes = self.here.losses, self.there.losses
        if stays > 0:
            return self.day * before_a_loss(self.day * (stays + goes))
        if goes > 0 and self.forecast.demand.job.deadline_at_ms is None:
            return self.day
        return before_a_loss(goes)

    def costs(self, share: float) -> _Costs:
        """The costs at the mean prices expected while `share` of the work is done."""
        if share not in self._costs:
            prices, here, there = self.forecast.mean_price_s(share), self.here, self.there
            price_s = prices.item(there.at)
            self._costs[share] = _Costs(
                prices.item(here.at) * here.run_s + here.run_charges,
                price_s * there.run_s + there.run_charges,
                price_s * there.move_billed_s + there.move_fixed,
            )
        return self._costs[share]

    def tests(self, limits: MoveLimits) -> Iterator[_Test]:
        """The tests that the move must pass."""
        yield _Test(self.day, limits.move_margin, limits.min_gain, 0)
        yield _Test(self.lasts, 1.0, 0.0, limits.least_saving_nano_usd)

    def burden(self, objective: Objective, test: _Test) -> float:
        """The logarithm of the cost of the move, relative to the highest cost at which it passes a test; at most 0 if
        it passes."""
        limit, seconds = self.limit(objective, test)
        costs = self.costs(test.share)
        return log_value(objective, test.share * costs.there + test.margin * costs.moving, seconds) - limit

    def limit(self, objective: Objective, test: _Test) -> tuple[float, float]:
        """(the highest log objective at which the move passes a test, the seconds that the move and the work at the
        target take)."""
        share, here, there = test.share, self.here, self.there
        seconds = max(share * there.run_s + test.margin * there.begin_s, 1e-3)
        staying = log_value(objective, share * self.costs(share).here - test.least_saving, share * here.run_s)
        return staying + math.log(1 - test.least_gain), seconds


class _Costs(NamedTuple):
    """nano-USD for all of the work where the job is (`here`) and at the target (`there`), and for `moving` to the
    target."""

    here: float
    there: float
    moving: float


def worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> bool:
    """Whether moving from row `stay` to row `go` pays for itself."""
    move = _Move.of(forecast, stay, go)
    return move.lateness <= 0 and all(move.burden(objective, test) <= 0 for test in move.tests(limits))


def burden(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> float:
    """How close a move from row `stay` to row `go` is to not paying; it pays if the result is at most 0.

    This is the larger of two logarithms: the cost of the move (by the objective, with its margin) relative to the
    highest cost at which it pays, and the time that it takes relative to that of the remaining work.
    """
    move = _Move.of(forecast, stay, go)
    return max(move.lateness, *(move.burden(objective, test) for test in move.tests(limits)))


def promised_saving(forecast: Forecast, ranking: Ranking, stay: int, go: int) -> int:
    """nano-USD that moving from row `stay` to row `go` is expected to save, for as long as the saving lasts."""
    return promise(forecast, ranking, stay, go)[0]


def promise(forecast: Forecast, ranking: Ranking, stay: int, go: int) -> tuple[int, float]:
    """(nano-USD that moving from row `stay` to row `go` is expected to save, for as long as the saving lasts; the share
    of the work for which it lasts).

    From spot, it lasts until the first loss of either machine. A machine that is not lost would be kept to the end, so
    from there the saving lasts until a loss takes the job back to such a machine, because there is no time to wait for
    spot capacity. The way back costs egress. The next move counts what could be saved after that. Expected price
    changes are included, because the forecast uses mean prices.
    """
    move = _Move.of(forecast, stay, go)
    lasts, way_back = move.lasts, 0.0
    if move.here.losses <= 0 < move.there.losses:
        returns = (1 - ranking.outlook.time_to_wait(go)) * move.there.losses
        lasts, way_back = before_a_loss(returns), -math.expm1(-returns) * _egress(forecast, go, stay)
    costs = move.costs(lasts)
    return round(lasts * (costs.here - costs.there) - costs.moving - way_back), lasts


def _egress(forecast: Forecast, source: int, target: int) -> float:
    """nano-USD for moving the checkpoint from the place of row `source` to that of row `target`."""
    market, size = forecast.pool.market, forecast.demand.checkpoint_bytes
    if not size:
        return 0.0
    there = market.listing.site[[target]]
    return float(Routes(forecast.demand, market).to_sites(market.place(source), size, there)[0])


def price_worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> int | None:
    """The highest present price (nano-USD per hour) of row `go` at which moving there pays; None if it never pays."""
    move = _Move.of(forecast, stay, go)
    if objective.cost_weight == 0 or move.lateness > 0:
        return None
    prices, there = [], move.there
    for test in move.tests(limits):
        share, margin = test.share, test.margin
        limit, seconds = move.limit(objective, test)
        log_cost = (limit - objective.time_weight * math.log(seconds)) / objective.cost_weight
        billed_s = share * there.run_s + margin * there.move_billed_s
        left = math.exp(log_cost) - share * there.run_charges - margin * there.move_fixed
        if left <= 0 or billed_s <= 0:
            return None
        prices.append(_price_now(forecast, go, left / billed_s, share * there.run_s))
    return min(prices)


def price_worth_choosing(
    objective: Objective, forecast: Forecast, ranking: Ranking, row: int, rival: int
) -> int | None:
    """The highest present price (nano-USD per hour) at which `row` is no worse than `rival` for a job that is not
    running.

    None if there is no such price, or if the objective ignores cost. The cost of using other offers after losses is
    assumed not to change with the price.
    """
    if objective.cost_weight == 0:
        return None
    pool, mid = forecast.pool, forecast.mid
    at, (cost, seconds) = pool.at(row), ranking.outlook.of(row)
    cell = int(pool.cell[at])
    value = log_value(objective, *ranking.outlook.of(rival))
    log_cost = (value - objective.time_weight * math.log(max(seconds, 1e-3))) / objective.cost_weight
    billed_s = float(mid.billed_s[cell])
    left = math.exp(min(log_cost, 700.0)) - float(mid.charges[cell]) - (cost - float(mid.cost[at]))
    if left <= 0 or billed_s <= 0:
        return None
    return _price_now(forecast, row, left / billed_s, billed_s)


def _price_now(forecast: Forecast, row: int, mean_s: float, seconds: float) -> int:
    """The present price (nano-USD per hour) of a row from which a mean of `mean_s` (per second) over the next `seconds`
    is expected."""
    return int(forecast.pool.ahead.price_for(forecast.pool.at(row), mean_s * 3600, seconds))
