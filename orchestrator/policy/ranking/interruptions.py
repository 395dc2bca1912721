"""Interruptions: what losing machines adds to a job's time and cost, in addition to restarts and repeated work.

After a loss, the job either waits until its offer has capacity again, or continues on the best of a few other offers.
It chooses what is better for the remaining work, by the rule of `patience`. Waiting takes time but costs nothing. Going
elsewhere takes no time, but costs the transfer of the checkpoint and the higher price of the remaining work there. The
job uses only offers on which the remaining budget pays for the rest.

The number of losses is Poisson with an uncertain rate, and the length of an outage is exponential with an uncertain
mean. Each pool where the job loses machines has rates of its own, so the more pools it visits, the more their
deviations cancel out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.market import Market, expected_wait_s
from orchestrator.market.availability import BACKOFF_MS
from orchestrator.market.cached_property import cached_property
from orchestrator.market.outages import WEIGHT
from orchestrator.model import Objective
from orchestrator.policy.demand import TIME_TOLERANCE
from orchestrator.policy.ranking.cost import Z95, Forecast
from orchestrator.policy.ranking.limits import Bools, Limits
from orchestrator.policy.ranking.objectives import patient
from orchestrator.policy.ranking.outages import MOST_WAIT, mean_outages_h
from orchestrator.policy.ranking.pool import Floats, Rows
from orchestrator.policy.ranking.routes import Routes
from providers.billing.charges import GB

OTHERS = 4
"""The number of other offers that a job may use after a loss: those that cost least."""
_SIDES = np.array((-1.0, 1.0))[:, None]
_TAILS = Z95 * _SIDES
_FAR = 1e3  # more than any logarithm of a cost
LEFT = (1 / 6, 1 / 2, 5 / 6)
"""The shares of the work that may be left at a loss. Losses are assumed equally likely at each."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of a non-negative quantity, over rows. `nothing` says whether it is 0 with a probability of at
    least 5 %."""

    mean: Floats
    variance: Floats
    nothing: Bools | None = None

    @cached_property
    def deviations(self) -> Floats:
        """How far the 5th and the 95th percentile (first axis) are from the mean; both at least 0."""
        found: Floats = np.maximum((quantile(self, _TAILS) - self.mean) * _SIDES, 0)
        if self.nothing is not None:
            found[0] = np.where(self.nothing, self.mean, found[0])
        return found


class Interruptions:
    """The losses of a forecast, over its rows. `others` are the positions of the offers to which the job may go after a
    loss."""

    def __init__(self, forecast: Forecast, others: Rows, limits: Limits) -> None:
        pool, mid = forecast.pool, forecast.mid
        self._losses = pool.over_rows(mid.losses)
        self._setback_s = pool.over_rows(forecast.setback_s)
        self._price_s = mid.price_s
        self._per_loss = forecast.transition_costs.per_loss[pool.site[pool.cell]]
        self.outage_s, self.outages_known = _outages(pool.market, pool.rows)
        waits, at_once = _after_a_loss(forecast, others, self.outage_s, limits)
        waiting, patiently = _mean(waits), np.where(waits, 0.0, at_once)
        gap_s, extra, extra_square = self.outage_s * waiting, _mean(patiently), _mean(patiently**2)
        self._spare_s = limits.end_s - mid.seconds
        if limits.left_s is not None:
            # If there is not enough time for every wait, the job waits only after this share of the losses.
            kept = np.clip(self._spare_s / np.maximum(self._losses * gap_s, 1.0), 0, 1)
            gap_s, waiting = kept * gap_s, kept * waiting
            extra = kept * extra + (1 - kept) * _mean(at_once)
            extra_square = kept * extra_square + (1 - kept) * _mean(at_once**2)
        self._gap_s, self._gap_square = gap_s, 2 * gap_s * self.outage_s
        self._extra, self._extra_square = extra, extra_square
        pools = 1 + (1 - waiting) * self._losses
        self._rate_spread = 1 / (pool.over_rows(pool.losses_known) * pools)
        self._mean_spread = 1 / (self.outages_known * pools)

    @cached_property
    def time_to_wait(self) -> Floats:
        """The share of the losses after which there is time to wait until the capacity is back."""
        return np.clip(self._spare_s / np.maximum(self._losses * self.outage_s, 1.0), 0, 1)

    @property
    def away_s(self) -> Floats:
        """Expected market seconds without a machine."""
        away_s: Floats = self._losses * self._gap_s
        return away_s

    @property
    def elsewhere(self) -> Floats:
        """Expected nano-USD that using other offers adds."""
        elsewhere: Floats = self._losses * self._extra
        return elsewhere

    @property
    def billed(self) -> Moments:
        """Market seconds of restarts and repeated work."""
        return self._sum(self._setback_s, self._setback_s**2)

    @cached_property
    def seconds(self) -> Moments:
        """Market seconds of restarts, repeated work and waiting."""
        each = self._setback_s + self._gap_s
        square = self._setback_s**2 + 2 * self._setback_s * self._gap_s + self._gap_square
        total = self._sum(each, square)
        return replace(total, variance=total.variance + self._mean_spread * self.away_s**2)

    @cached_property
    def cost(self) -> Moments:
        """nano-USD of restarts, repeated work and using other offers."""
        fixed = self._price_s * self._setback_s + self._per_loss
        square = fixed**2 + 2 * fixed * self._extra + self._extra_square
        return self._sum(fixed + self._extra, square)

    def _sum(self, each: Floats, square: Floats) -> Moments:
        """The sum over all losses of a quantity whose mean and mean square per loss are `each` and `square`."""
        mean = self._losses * each
        return Moments(mean, self._losses * square + self._rate_spread * mean**2, self._perhaps_none)

    @cached_property
    def _perhaps_none(self) -> Bools:
        """Whether the probability that no machine is lost is at least 5 %. The number of losses is negative
        binomial."""
        none = np.log1p(self._losses * self._rate_spread) / np.maximum(self._rate_spread, 1e-9)
        return np.asarray(none <= -math.log(0.05))


def quantile(moments: Moments, z: float | Floats) -> Floats:
    """A quantile of the gamma distribution with these moments (Wilson and Hilferty 1931); at least 0. `z` is the same
    quantile of the standard normal."""
    mean = np.maximum(moments.mean, 1e-9)
    ninth = moments.variance / mean**2 / 9
    root = np.maximum(1 - ninth + z * np.sqrt(ninth), 0.0)
    return np.where(moments.mean > 1e-9, mean * root**3, 0.0)


def _outages(market: Market, rows: Rows) -> tuple[Floats, Floats]:
    """Over `rows`: (the expected length in market seconds of an outage that begins now, the number of outages behind
    that estimate)."""
    begins, back = np.zeros(len(rows), np.int64), np.full(len(rows), BACKOFF_MS)
    wait_s = expected_wait_s(mean_outages_h(market, rows), at_ms=0, last_sign_ms=begins, until_ms=back)
    known: Floats = WEIGHT + market.returns[rows].astype(np.float64)
    return wait_s, known


def before_a_loss(losses: float) -> float:
    """The expected share of the work that is done before the first loss, if `losses` are expected during all of it."""
    return -math.expm1(-losses) / losses if losses > 1e-9 else 1.0


def fallbacks(forecast: Forecast, open_at: Rows, limits: Limits) -> Rows:
    """The few positions of `open_at` where a job is best off after a loss."""
    pool, run_s = forecast.pool, forecast.mid.run_s
    cell = pool.cell[open_at]
    value = _value(_rule(forecast, limits), _run_cost(forecast)[open_at], np.maximum(run_s, 1e-3)[cell], axis=0)
    if len(open_at) > 64:
        near = np.flatnonzero(value <= np.partition(value, OTHERS)[OTHERS])
        open_at, value = open_at[near], value[near]
    return open_at[np.argsort(value, kind="stable")[: OTHERS + 1]]


def _rule(forecast: Forecast, limits: Limits) -> Objective:
    """The objective by which the job decides how to continue after a loss. Under a deadline, time counts only as far as
    it is scarce."""
    objective = forecast.demand.job.spec.objective
    return objective if limits.left_s is not None and objective.time_weight == 0 else patient(objective)


def _run_cost(forecast: Forecast) -> Floats:
    """nano-USD for all of the work once the job trains on each row. By then, prices are known, so old prices are not
    counted higher."""
    pool, mid = forecast.pool, forecast.mid
    price_s = mid.price_s if pool.drift is None else mid.price_s * np.exp(-pool.drift)
    return np.maximum(price_s * pool.over_rows(mid.run_s) + pool.over_rows(mid.run_charges), 1.0)


def _value(by: Objective, cost: Floats, seconds: Floats, *, axis: int) -> Floats:
    """The value by which offers are compared along an axis; smaller is better. `fastest` compares costs among the
    offers that finish within its tolerance of the earliest."""
    if by.cost_weight == 0:
        near = seconds <= (1 + TIME_TOLERANCE) * seconds.min(axis=axis, keepdims=True, initial=np.inf)
        found: Floats = np.where(near, np.log(cost) - _FAR, np.log(seconds))
        return found
    value: Floats = by.cost_weight * np.log(cost)
    return value + by.time_weight * np.log(seconds) if by.time_weight else value


def _mean(column: Floats | Bools) -> Floats:
    """The mean over LEFT."""
    mean: Floats = np.add.reduce(column, axis=0) / len(LEFT)
    return mean


def _after_a_loss(forecast: Forecast, others: Rows, outage_s: Floats, limits: Limits) -> tuple[Bools, Floats]:
    """After a loss: (whether the job waits, nano-USD added by going elsewhere at once). Both of shape (len(LEFT),
    rows)."""
    pool, mid, objective = forecast.pool, forecast.mid, forecast.demand.job.spec.objective
    cell, by = pool.cell, _rule(forecast, limits)
    cost, seconds = _run_cost(forecast), np.maximum(mid.run_s, 1e-3)[cell]
    left = np.array(LEFT)[:, None]
    shape = len(LEFT), len(cell)
    if not others.size:
        return np.ones(shape, np.bool_), np.zeros(shape)
    size, here = forecast.demand.checkpoint_bytes, np.arange(len(cell))
    egress = np.zeros((len(others), len(cell)))
    if size:
        site = pool.site[cell]
        routes = Routes(forecast.demand, pool.market)
        rates = [routes.rates_to(pool.market.place(row))[site] for row in pool.rows[others].tolist()]
        egress = np.stack(rates) * (size / GB)
    # Over LEFT, the other offers and the rows:
    going = left[:, :, None] * cost[others][:, None] + egress
    going_s = left[:, :, None] * seconds[others][:, None]
    itself = np.arange(len(others)), others
    if by.cost_weight == 0:
        going_s = np.repeat(going_s, len(cell), axis=2)
        going_s[:, *itself] = np.inf
    going_value = _value(by, going, going_s, axis=1)
    going_value[:, *itself] = np.inf
    if limits.left_cost is not None:
        going_value[going > limits.left_cost - ((1 - left) * cost)[:, None]] = np.inf
    best = going_value.argmin(axis=1)
    at = np.arange(len(LEFT))[:, None], best, here
    least, there, egress_there = going_value[at], going[at], egress[best, here]
    alone = np.isinf(least)
    waits = alone
    if objective.cost_weight > 0 and limits.waits:
        staying = _value(by, left * cost, left * seconds + outage_s, axis=0)
        patiently = limits.left_s is not None and objective.time_weight == 0
        most_s = MOST_WAIT * forecast.whole * seconds[others[best]]
        waits = alone | (staying < least) & (patiently | (outage_s <= most_s))
    # It stays there and pays the higher price until the next loss.
    share_there = np.minimum(left, 1 / np.maximum(mid.losses[cell], 1.0)) / left
    at_once = egress_there + np.maximum(there - egress_there - left * cost, 0.0) * share_there
    return waits, np.where(alone, 0.0, at_once) if alone.any() else at_once
