"""Interruptions: what losing machines adds to a job's time and cost beyond restarts and repeated work.

After a loss, the job either waits until its offer has capacity again or goes on at the best of a few other offers,
whichever is better by the rule of `patience` for the work that is then left. Waiting takes time and no money. Going
elsewhere takes no time, but costs the transfer of the checkpoint and what the rest of the work costs more there.

The number of losses is Poisson with an uncertain rate, and the length of an outage is exponential with an uncertain
mean. All pools where a job is lost have rates of their own, so the more of them it visits, the more these even out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.market import Market, expected_wait_s
from orchestrator.market.availability import BACKOFF_MS
from orchestrator.market.outages import WEIGHT
from orchestrator.policy.ranking.cost import Floats, Forecast, Rows
from orchestrator.policy.ranking.patience import MOST_WAIT, mean_outages_h, patient
from providers.billing.charges import GB

OTHERS = 4
"""How many other offers a job may go to after a loss: those that cost least."""
LEFT = (1 / 6, 1 / 2, 5 / 6)
"""The shares of the work that may be left at a loss; losses are equally likely at each."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps a job from waiting, or its time or cost from growing.

    A deadline in `left_s` market seconds is kept, less `margin_s`, on demand if necessary: from now on, that takes
    `bought_s` and costs `bought_cost` (nano-USD). A job with a budget spends no more than `left_cost`. None: without
    such a limit. `waits`: whether it may wait for capacity at all.
    """

    left_s: float | None = None
    bought_s: float = 0.0
    bought_cost: float = 0.0
    margin_s: float = 0.0
    left_cost: float | None = None
    waits: bool = True

    @property
    def end_s(self) -> float:
        """When the job has to be done, in market seconds from now."""
        return math.inf if self.left_s is None else max(self.left_s - self.margin_s, self.bought_s)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Mean and variance, over rows."""

    mean: Floats
    variance: Floats


class Interruptions:
    """The losses of a forecast, over its rows. `open_at` are the positions of offers where the job could go instead."""

    def __init__(self, forecast: Forecast, open_at: Rows, limits: Limits = NO_LIMITS) -> None:
        pool, mid = forecast.pool, forecast.mid
        self._losses = mid.losses[pool.cell]
        self._setback_s = forecast.setback_s[pool.cell]
        self._price_s = mid.price_s
        self._per_loss = forecast.transition_costs.per_loss[pool.site[pool.cell]]
        self.outage_s, self.outages_known = _outages(pool.market, pool.rows)
        gaps, patiently, at_once = _after_a_loss(forecast, open_at, self.outage_s, limits)
        # Where there is not enough time for all waiting, the job waits after so many of the losses only.
        spare_s = limits.end_s - mid.seconds
        kept = np.clip(spare_s / np.maximum(self._losses * gaps.mean(axis=0), 1.0), 0, 1)
        self._gap_s, self._gap_square = kept * gaps.mean(axis=0), 2 * kept * (gaps**2).mean(axis=0)
        self._extra = (kept * patiently + (1 - kept) * at_once).mean(axis=0)
        self._extra_square = (kept * patiently**2 + (1 - kept) * at_once**2).mean(axis=0)
        elsewhere = 1 - kept * (gaps > 0).mean(axis=0)
        pools = 1 + elsewhere * self._losses
        self._rate_spread = 1 / (pool.losses_known[pool.cell] * pools)
        self._mean_spread = 1 / (self.outages_known * pools)

    @property
    def away_s(self) -> Floats:
        """Expected market seconds without a machine."""
        away_s: Floats = self._losses * self._gap_s
        return away_s

    @property
    def elsewhere(self) -> Floats:
        """Expected nano-USD for going to other offers."""
        elsewhere: Floats = self._losses * self._extra
        return elsewhere

    @property
    def billed(self) -> Moments:
        """Market seconds of restarts and repeated work."""
        return self._sum(self._setback_s, self._setback_s**2)

    @property
    def seconds(self) -> Moments:
        """Market seconds of restarts, repeated work and waiting."""
        each = self._setback_s + self._gap_s
        square = self._setback_s**2 + 2 * self._setback_s * self._gap_s + self._gap_square
        total = self._sum(each, square)
        return Moments(total.mean, total.variance + self._mean_spread * self.away_s**2)

    @property
    def cost(self) -> Moments:
        """nano-USD for all of that, and for going elsewhere."""
        fixed = self._price_s * self._setback_s + self._per_loss
        square = fixed**2 + 2 * fixed * self._extra + self._extra_square
        return self._sum(fixed + self._extra, square)

    def _sum(self, each: Floats, square: Floats) -> Moments:
        """The sum over all losses of something with this mean and mean square."""
        mean = self._losses * each
        return Moments(mean, self._losses * square + self._rate_spread * mean**2)


def quantile(moments: Moments, z: float) -> Floats:
    """The quantile (of the standard normal: `z`) of a gamma distribution (Wilson and Hilferty 1931); at least 0."""
    mean = np.maximum(moments.mean, 1e-9)
    ninth = moments.variance / mean**2 / 9
    root: Floats = np.maximum(1 - ninth + z * np.sqrt(ninth), 0.0)
    return np.where(moments.mean > 1e-9, mean * root**3, 0.0)


def _outages(market: Market, rows: Rows) -> tuple[Floats, Floats]:
    """(market seconds that an outage which begins now is expected to last, in how many outages that was learned), over
    `rows`."""
    begins, back = np.zeros(len(rows), np.int64), np.full(len(rows), BACKOFF_MS)
    wait_s = expected_wait_s(mean_outages_h(market, rows), at_ms=0, last_sign_ms=begins, until_ms=back)
    known: Floats = WEIGHT + market.returns[rows].astype(np.float64)
    return wait_s, known


def _after_a_loss(forecast: Forecast, open_at: Rows, outage_s: Floats, limits: Limits) -> tuple[Floats, Floats, Floats]:
    """Over LEFT and the rows, after a loss: (market seconds of waiting, nano-USD for going elsewhere where it does not
    wait, nano-USD for going elsewhere at once)."""
    pool, mid, objective = forecast.pool, forecast.mid, forecast.demand.job.spec.objective
    cell = pool.cell
    price_s = mid.price_s if pool.drift is None else mid.price_s * np.exp(-pool.drift)  # by then, prices are known
    cost = np.maximum(price_s * mid.run_s[cell] + mid.run_charges[cell], 1.0)
    seconds = np.maximum(mid.run_s[cell], 1e-3)
    # Under a deadline, time counts only as far as it is scarce.
    due = limits.left_s is not None and objective.time_weight == 0
    by = objective if due else patient(objective)
    value = by.cost_weight * np.log(cost) + by.time_weight * np.log(seconds)
    left = np.array(LEFT)[:, None]
    none = np.zeros((len(LEFT), len(cell)))
    others = open_at[np.argsort(value[open_at], kind="stable")[: OTHERS + 1]]
    if not others.size:
        return none + outage_s, none, none
    size = forecast.demand.checkpoint_bytes
    egress = np.zeros((len(others), len(cell)))
    if size:
        site = pool.site[cell]
        rates = [pool.market.rates_to(pool.market.place(int(pool.rows[other])))[site] for other in others]
        egress = np.stack(rates) * (size / GB)
    # Over LEFT, the other offers and the rows:
    going = left[:, :, None] * cost[others][:, None] + egress
    going_value = by.cost_weight * np.log(going) + by.time_weight * np.log(left[:, :, None] * seconds[others][:, None])
    going_value[:, others[:, None] == np.arange(len(cell))] = np.inf
    best = going_value.argmin(axis=1)
    least = np.take_along_axis(going_value, best[:, None], axis=1)[:, 0]
    there = np.take_along_axis(going, best[:, None], axis=1)[:, 0]
    egress_there = np.take_along_axis(egress, best, axis=0)
    alone = np.isinf(least)
    waits = alone
    if objective.cost_weight > 0 and limits.waits:
        staying = by.cost_weight * np.log(left * cost) + by.time_weight * np.log(left * seconds + outage_s)
        waits = alone | (staying < least) & (due | (outage_s <= MOST_WAIT * left * seconds[others[best]]))
    # It stays there, and pays more, until the next loss.
    share_there = np.minimum(left, 1 / np.maximum(mid.losses[cell], 1.0)) / left
    at_once = np.where(alone, 0.0, egress_there + np.maximum(there - egress_there - left * cost, 0.0) * share_there)
    return np.where(waits, outage_s, 0.0), np.where(waits, 0.0, at_once), at_once
