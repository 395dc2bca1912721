"""The gate for voluntary moves: stay unless a move pays for itself, with a margin, while it lasts.

A move is judged over the rest of the work, or over as much of it as one day of staying does, if that is less: prices
change too much to decide by more than a day. For that share of the work, staying must cost more than the target plus
`move_margin` times the cost of moving (both machines billed during start-up, the gap in training, egress), by
`min_gain`. The machines that the job is expected to lose count on both sides (each costs a start-up, repeated work and
egress: cost.py), so they do not shorten the horizon. But a move must also save its bare cost and `least_saving` before
a likely loss, and take less time than the work that is left: no move promises nothing. This follows Karpenter's
balanced consolidation (savings weighed against disruption). Its spot consolidation RFC describes what happens without
it: a job moves down the price ladder from one interruption to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.market.lazily import lazily
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
    ms), and may then move."""
    if probe_until_ms is not None:
        return (
            f"is on probe here for {(probe_until_ms - running.since_ms) / 60_000:.0f} min"
            if at_ms < probe_until_ms
            else ""
        )
    if at_ms < settled_ms(running, limits):
        return f"has been here for less than {limits.min_dwell_s / 60:.0f} min"
    if running.migrations_today >= limits.max_migrations_per_day:
        return f"has moved {running.migrations_today} times today"
    return ""


def settled_ms(running: Running, limits: MoveLimits) -> int:
    """When a job has been where it is for long enough to move again (market ms)."""
    return max(running.last_migration_ms or 0, running.since_ms) + round(limits.min_dwell_s * 1000)


class _Test(NamedTuple):
    """A test that a move must pass: over a share of the work, staying must cost more than the target and so many times
    the move, by this share of it and by an amount (nano-USD)."""

    share: float
    margin: float
    least_gain: float
    least_saving: int


class _Move:
    """A move from one row to another; what was worked out of it once is kept with the forecast."""

    def __init__(self, forecast: Forecast, stay: int, go: int) -> None:
        self.forecast, self.here, self.there = forecast, forecast.figures(stay), forecast.figures(go)
        left_s = self.here.run_s
        self.day = min(1.0, _DAY_S / left_s) if left_s > 0 else 1.0  # the share of the work that a day of staying does
        self._costs: dict[float, _Costs] = {}

    @classmethod
    def of(cls, forecast: Forecast, stay: int, go: int) -> _Move:
        """The move between two rows of the forecast's pool."""
        known = forecast.moves.get((stay, go))
        if known is None:
            known = forecast.moves[stay, go] = cls(forecast, stay, go)
        return known

    @lazily
    def lateness(self) -> float:
        """The logarithm of the time until the job trains there, relative to that of its work left where it is."""
        return math.log(max(self.there.move_billed_s, 1e-3) / max(self.here.run_s, 1e-3))

    @lazily
    def lasts(self) -> float:
        """In what share of the work a move must have paid for itself: all of it between machines that are not lost;
        until the first loss for a job with a deadline that leaves on-demand, because it may have to go back there; else
        in a day at most, and between spot machines until the first loss of either, which takes the job to the best
        offer of that time, whether it has moved or not.
        """
        stays, goes = self.here.losses, self.there.losses
        if stays > 0:
            return self.day * before_a_loss(self.day * (stays + goes))
        if goes > 0 and self.forecast.demand.job.deadline_at_ms is None:
            return self.day
        return before_a_loss(goes)

    def costs(self, share: float) -> _Costs:
        """What counts at the mean prices over a share of the work."""
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
        """The tests that it must pass."""
        yield _Test(self.day, limits.move_margin, limits.min_gain, 0)
        yield _Test(self.lasts, 1.0, 0.0, limits.least_saving_nano_usd)

    def burden(self, objective: Objective, test: _Test) -> float:
        """The logarithm of what it costs, relative to the most at which it passes a test."""
        limit, seconds = self.limit(objective, test)
        costs = self.costs(test.share)
        return log_value(objective, test.share * costs.there + test.margin * costs.moving, seconds) - limit

    def limit(self, objective: Objective, test: _Test) -> tuple[float, float]:
        """(the highest log objective at which it passes a test, the seconds that it takes)."""
        share, here, there = test.share, self.here, self.there
        seconds = max(share * there.run_s + test.margin * there.begin_s, 1e-3)
        staying = log_value(objective, share * self.costs(share).here - test.least_saving, share * here.run_s)
        return staying + math.log(1 - test.least_gain), seconds


class _Costs(NamedTuple):
    """nano-USD for all of the work where the job is and at the target, and for getting there."""

    here: float
    there: float
    moving: float


def worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> bool:
    """Whether moving from row `stay` to row `go` pays for itself."""
    move = _Move.of(forecast, stay, go)
    return move.lateness <= 0 and all(move.burden(objective, test) <= 0 for test in move.tests(limits))


def burden(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> float:
    """The logarithm of what moving from row `stay` to row `go` costs (by the objective, with its margin), relative to
    the most at which it pays; or of the time that it takes, relative to that of the work left, if that is more."""
    move = _Move.of(forecast, stay, go)
    return max(move.lateness, *(move.burden(objective, test) for test in move.tests(limits)))


def promised_saving(forecast: Forecast, ranking: Ranking, stay: int, go: int) -> int:
    """nano-USD that moving from row `stay` to row `go` is expected to save while that lasts."""
    return promise(forecast, ranking, stay, go)[0]


def promise(forecast: Forecast, ranking: Ranking, stay: int, go: int) -> tuple[int, float]:
    """(nano-USD that moving from row `stay` to row `go` is expected to save while that lasts, the share of the work for
    which it lasts).

    From spot, that is until the first loss of either machine. A machine that is not lost would be kept to the end; the
    saving then lasts until a loss takes the job back to such a machine, because there is no time to wait for another on
    spot. The way back costs egress. The next move promises the rest again. Changes of price are in the forecast of the
    mean prices.
    """
    move = _Move.of(forecast, stay, go)
    lasts, way_back = move.lasts, 0.0
    if move.here.losses <= 0 < move.there.losses:
        returns = (1 - ranking.outlook.time_to_wait(go)) * move.there.losses
        lasts, way_back = before_a_loss(returns), -math.expm1(-returns) * _egress(forecast, go, stay)
    costs = move.costs(lasts)
    return round(lasts * (costs.here - costs.there) - costs.moving - way_back), lasts


def _egress(forecast: Forecast, source: int, target: int) -> float:
    """nano-USD for bringing the checkpoint from one row's place to another's."""
    market, size = forecast.pool.market, forecast.demand.checkpoint_bytes
    if not size:
        return 0.0
    there = market.listing.site[[target]]
    return float(Routes(forecast.demand, market).to_sites(market.place(source), size, there)[0])


def price_worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> int | None:
    """The highest price (nano-USD per hour) of row `go` at which moving there pays; None if it never pays."""
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
    """The highest price (nano-USD per hour) at which `row` is no worse than `rival` for a job that runs nowhere; None
    if there is no such price or no limit. Going elsewhere after losses is taken to cost what it does at the present
    price."""
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
    """A row's present price (nano-USD per hour) at which its mean over `seconds` is expected to be `mean_s` per
    second."""
    return int(forecast.pool.ahead.price_for(forecast.pool.at(row), mean_s * 3600, seconds))
