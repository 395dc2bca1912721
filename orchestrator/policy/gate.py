"""The gate for voluntary moves: stay unless a move pays for itself, with a margin, while it lasts.

A move is judged over the rest of the work, or over as much of it as one day of staying does, if that is less: prices
change too much for a promise beyond a day. For that share of the work, staying must cost more than the target plus
`move_margin` times the cost of moving (both machines billed during start-up, the gap in training, egress), by
`min_gain`. The machines that the job is expected to lose count on both sides (each costs a start-up, repeated work and
egress: cost.py), so they do not shorten the horizon. But a move must also save its bare cost and `least_saving` while
its promise lasts (`_lasts`), which is until a likely loss, and take less time than the work that is left: no move
promises nothing. This follows Karpenter's balanced consolidation (savings weighed against disruption). Its spot
consolidation RFC describes what happens without it: a job moves down the price ladder from one interruption to the
next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.model import Objective
from orchestrator.policy.demand import MoveLimits, Running
from orchestrator.policy.ranking.cost import Figures, Forecast
from orchestrator.policy.ranking.objectives import log_value
from orchestrator.policy.ranking.order import Ranking

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


def worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> bool:
    """Whether moving from row `stay` to row `go` pays for itself."""
    return _lateness(forecast, stay, go) <= 0 and all(
        _burden(objective, forecast, stay, go, test) <= 0 for test in _tests(forecast, stay, go, limits)
    )


def burden(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> float:
    """The logarithm of what moving from row `stay` to row `go` costs (by the objective, with its margin), relative to
    the most at which it pays; or of the time that it takes, relative to that of the work left, if that is more."""
    burdens = (_burden(objective, forecast, stay, go, test) for test in _tests(forecast, stay, go, limits))
    return max(_lateness(forecast, stay, go), *burdens)


def _lateness(forecast: Forecast, stay: int, go: int) -> float:
    """The logarithm of the time until the job trains at row `go`, relative to that of its work left at row `stay`."""
    takes_s, left_s = forecast.figures(go).move_billed_s, forecast.figures(stay).run_s
    return math.log(max(takes_s, 1e-3) / max(left_s, 1e-3))


def _tests(forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> Iterator[_Test]:
    yield _Test(_horizon(forecast, stay), limits.move_margin, limits.min_gain, 0)
    yield _Test(_lasts(forecast, stay, go), 1.0, 0.0, limits.least_saving_nano_usd)


def _burden(objective: Objective, forecast: Forecast, stay: int, go: int, test: _Test) -> float:
    limit, there, seconds = _limit(objective, forecast, stay, go, test)
    return log_value(objective, test.share * there.run_cost + test.margin * there.moving, seconds) - limit


def promised_saving(forecast: Forecast, stay: int, go: int) -> int:
    """nano-USD that moving from row `stay` to row `go` is expected to save while that lasts (`_lasts`). Changes of
    price are in the forecast of the mean prices."""
    share = _lasts(forecast, stay, go)
    here, there = _Priced.of(forecast, stay, share), _Priced.of(forecast, go, share)
    return round(share * (here.run_cost - there.run_cost) - there.moving)


def _lasts(forecast: Forecast, stay: int, go: int) -> float:
    """For what share of the work a move saves: all of it between machines that are not lost; until the first loss for a
    job with a deadline that leaves on-demand, because it may have to go back there, and the next move promises the rest
    again; else for a day at most, and between spot machines until the first loss of either, which takes the job to the
    best offer of that time, whether it has moved or not.
    """
    stays, goes = forecast.figures(stay).losses, forecast.figures(go).losses
    day = _horizon(forecast, stay)
    if stays > 0:
        return day * _before_a_loss(day * (stays + goes))
    if goes > 0 and forecast.demand.job.deadline_at_ms is None:
        return day
    return _before_a_loss(goes)


def _before_a_loss(losses: float) -> float:
    """The expected share of the work that is done before the first of so many expected losses."""
    return -math.expm1(-losses) / losses if losses > 1e-9 else 1.0


def price_worth_moving(objective: Objective, forecast: Forecast, stay: int, go: int, limits: MoveLimits) -> int | None:
    """The highest price (nano-USD per hour) of row `go` at which moving there pays; None if it never pays."""
    if objective.cost_weight == 0:
        return None
    if _lateness(forecast, stay, go) > 0:
        return None
    prices = []
    for test in _tests(forecast, stay, go, limits):
        share, margin = test.share, test.margin
        limit, (_, there), seconds = _limit(objective, forecast, stay, go, test)
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


class _Priced(NamedTuple):
    """A row's expected mean price over the horizon (nano-USD per second), and its figures."""

    price_s: float
    row: Figures

    @classmethod
    def of(cls, forecast: Forecast, row: int, share: float) -> _Priced:
        """Those of `row` for the given share of the remaining work."""
        figures = forecast.figures(row)
        return cls(forecast.mean_price_s(share).item(figures.at), figures)

    @property
    def run_cost(self) -> float:
        """nano-USD for finishing the work there once the job trains there."""
        return self.price_s * self.row.run_s + self.row.run_charges

    @property
    def moving(self) -> float:
        """nano-USD for getting there."""
        return self.price_s * self.row.move_billed_s + self.row.move_fixed


def _horizon(forecast: Forecast, stay: int) -> float:
    """The share of the work that is done in a day of staying at a row."""
    left_s = forecast.figures(stay).run_s
    return min(1.0, _DAY_S / left_s) if left_s > 0 else 1.0


def _limit(objective: Objective, forecast: Forecast, stay: int, go: int, test: _Test) -> tuple[float, _Priced, float]:
    """(highest log objective at which a move passes a test, the values of row `go`, its seconds)."""
    share = test.share
    here, there = _Priced.of(forecast, stay, share), _Priced.of(forecast, go, share)
    staying = log_value(objective, share * here.run_cost - test.least_saving, share * here.row.run_s)
    seconds = max(share * there.row.run_s + test.margin * there.row.begin_s, 1e-3)
    return staying + math.log(1 - test.least_gain), there, seconds
