"""Outlook: what finishing a job on each offer would cost and take, expected and at the 5th and 95th percentile.

On one machine, `work` seconds of training (checkpoints included) are hit by hazard x time losses; each of them costs a
start-up and the work since the last checkpoint, during which it may happen again:

    work    = steps left / (steps per second) x (1 + checkpoint overhead)
    losses  = hazard x work / (1 - hazard x setback)             setback = start-up + half a checkpoint interval
    seconds = begin + work + losses x setback
    cost    = price x (seconds billed, at least the minimum) + storage x seconds + egress x starts

`begin` is 0 where the job already runs, the start-up for a job that runs nowhere, and for a move only the gap: the
source trains on while the target starts, at the price of billing both. The interval of the cost follows from that of
the throughput and from the Poisson percentiles of the losses.

Columns are computed over the rows that are asked for and no others: those that a job may use, or the few that are
shown. What depends on the site or on the kind of hardware alone is worked out once per site or kind.

Must not know: objectives, constraints, whether an offer may be used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market
from orchestrator.model import CostParts, Estimate
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, Running
from orchestrator.policy.tolls import Tolls, tolls

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

Z95 = 1.6449  # standard normal quantile of 95 %
ASSUMED_HORIZON_S = 86_400.0  # of a job whose number of steps is not known yet
_MIN_PROGRESS = 0.1  # hazard x setback never eats more than 90 % of the time: the formula's pole lies at 100 %
_MAX_INTERVAL_S = 3_600.0


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows of a market, ascending, with the columns that a forecast needs; jobs that may use the same rows share it."""

    market: Market
    rows: Rows

    @cached_property
    def site(self) -> Rows:
        return self.market.listing.site[self.rows]

    @cached_property
    def kind(self) -> Rows:
        return self.market.listing.kind[self.rows]

    @cached_property
    def kinds(self) -> list[int]:
        """The kinds of hardware among the rows."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.market.listing.kinds))).tolist()

    @cached_property
    def price_s(self) -> Floats:
        """nano-USD per second; 0 without a known price."""
        return np.maximum(self.market.price[self.rows], 0) / 3600

    @cached_property
    def hazard_s(self) -> Floats:
        """Losses per second."""
        return self.market.hazard[self.rows] / 3600

    @cached_property
    def spot(self) -> NDArray[np.bool_]:
        return self.market.spot[self.rows]

    @cached_property
    def startup_s(self) -> Floats:
        return self.market.site_startup_s[self.site]

    def at(self, row: int) -> int:
        """The position of a market row. It must be one of the pool."""
        return int(np.searchsorted(self.rows, row))

    def __contains__(self, row: int) -> bool:
        position = self.at(row)
        return position < len(self.rows) and int(self.rows[position]) == row


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """How it goes at one percentile; columns over the rows of a pool. Seconds of market time, nano-USD as floats.

    `run_*` is finishing once it trains there, `seconds` and `cost` include getting there from where the job is. Of
    `run_cost`, `run_dues` are storage and egress, which do not follow the price.
    """

    losses: Floats
    run_s: Floats
    run_dues: Floats
    run_cost: Floats
    seconds: Floats
    cost: Floats


@dataclass(frozen=True, eq=False)
class Outlook:
    """What to expect of one job over the rows of `pool`: `mid`, `low` and `high` are made when first asked for.

    While it gets to an offer, training stands still for `begin_s`; that costs `move_billed_s` at the target's price and
    `move_fixed` besides. `setback_s` is what a loss takes. With `known` false the number of steps is assumed and only
    ratios mean something. `current` is the row where the job runs and could stay.
    """

    pool: Pool
    demand: Demand
    perf: PerfBook
    estimates: Mapping[int, Estimate]
    tolls: Tolls
    steps_left: float
    current: int | None

    @property
    def known(self) -> bool:
        return self.demand.total_steps is not None

    def over(self, rows: Iterable[int]) -> Outlook:
        """The same outlook over other rows of the market, in any order."""
        pool = Pool(self.pool.market, np.array(sorted(set(rows)), np.int64))
        return dataclasses.replace(self, pool=pool, estimates=_estimates(self.demand, pool, self.perf, self.estimates))

    def throughput(self, row: int) -> Estimate:
        """Steps per market second on a row's kind of hardware."""
        return self.estimates[int(self.pool.market.listing.kind[row])]

    @property
    def overhead(self) -> float:
        return self.demand.job.spec.checkpoint.max_overhead

    @cached_property
    def rate(self) -> Floats:
        """Steps per second."""
        return self._per_kind("value")[self.pool.kind]

    @cached_property
    def setback_s(self) -> Floats:
        return self._site_setback_s[self.pool.site]

    @cached_property
    def begin_s(self) -> Floats:
        return self._from_here(self.tolls.begin_s)

    @cached_property
    def move_billed_s(self) -> Floats:
        return self._from_here(self.tolls.billed_s)

    @cached_property
    def move_fixed(self) -> Floats:
        return self._from_here(self.tolls.fixed)

    @cached_property
    def progress(self) -> Floats:
        """The share of the time that is not spent on making up for losses."""
        return np.maximum(1 - self.pool.hazard_s * self.setback_s, _MIN_PROGRESS)

    @cached_property
    def per_step(self) -> Floats:
        """nano-USD per step, once it trains."""
        return self.pool.price_s * (1 + self.overhead) / (self.rate * self.progress)

    @cached_property
    def mid(self) -> Case:
        work_s = self._work_s("value")
        return self._case(work_s, self._losses(work_s))

    @cached_property
    def low(self) -> Case:
        work_s = self._work_s("high")
        losses = self._losses(work_s)
        return self._case(work_s, np.maximum(losses - Z95 * np.sqrt(losses), 0))

    @cached_property
    def high(self) -> Case:
        # A spot machine that can be lost is taken to be lost once at least: a promise that does not survive the first
        # loss is none.
        work_s = self._work_s("low")
        losses = self._losses(work_s)
        most = np.maximum(losses + Z95 * np.sqrt(losses), 1)
        return self._case(work_s, np.where(self.pool.hazard_s > 0, most, 0))

    def afresh(self, case: Case) -> tuple[Floats, Floats]:
        """(seconds, cost) of starting there from nowhere; on the current row of going on."""
        startup_s = self.pool.startup_s
        if self.current is not None and self.current in self.pool:
            startup_s = startup_s.copy()
            startup_s[self.pool.at(self.current)] = 0.0
        return case.run_s + startup_s, case.run_cost + startup_s * self.pool.price_s

    def parts(self, row: int) -> CostParts:
        """What the expected cost on a row of the pool consists of; the sum is exact."""
        at, case = self.pool.at(row), self.mid
        price_s = float(self.pool.price_s[at])
        losses, run_s = float(case.losses[at]), float(case.run_s[at])
        work_s = float(self._work_s("value")[at])
        site = int(self.pool.site[at])
        total = round(float(case.cost[at]))
        overhead = round(price_s * work_s * self.overhead / (1 + self.overhead))
        preemptions = round(price_s * losses * float(self.setback_s[at]))
        start = round(price_s * float(self.move_billed_s[at])) + round(self._from_here(self.tolls.double)[at])
        storage = round(float(self.tolls.storage_s[site]) * run_s)
        dues = round(float(case.run_dues[at])) + round(float(self._from_here(self.tolls.egress)[at]))
        minimum = round(float(self._short_s(case)[at]) * price_s)
        known = overhead + preemptions + start + dues + minimum
        return CostParts(
            compute_nano_usd=total - known,
            checkpoint_nano_usd=overhead,
            preemption_nano_usd=preemptions,
            start_nano_usd=start,
            egress_nano_usd=dues - storage,
            storage_nano_usd=storage,
            minimum_nano_usd=minimum,
        )

    def _case(self, work_s: Floats, losses: Floats) -> Case:
        run_s = work_s + losses * self.setback_s
        dues = self._dues(run_s, losses)
        run_cost = self.pool.price_s * run_s + dues
        seconds = run_s + self.begin_s
        cost = run_cost + (self.pool.price_s * self.move_billed_s + self.move_fixed)
        short_s = self.tolls.minimum_s - float(run_s.min(initial=np.inf))
        if short_s > 0:  # only a job of seconds is billed more than it takes
            case = Case(losses, run_s, dues, run_cost, seconds, cost)
            cost = cost + self._short_s(case) * self.pool.price_s
        return Case(losses, run_s, dues, run_cost, seconds, cost)

    def _short_s(self, case: Case) -> Floats:
        """Seconds that are billed beyond the end, where a machine is rented for less than the minimum."""
        least = self._from_here(self.tolls.site_minimum_s)
        return np.maximum(least - case.run_s - self.move_billed_s, 0.0)

    def _dues(self, run_s: Floats, losses: Floats) -> Floats:
        if not self.tolls.any_dues:
            return np.zeros(len(run_s))
        return self.tolls.upkeep_s[self.pool.site] * run_s + self.tolls.per_loss[self.pool.site] * losses

    def _work_s(self, quantile: str) -> Floats:
        return (self.steps_left * (1 + self.overhead) / self._per_kind(quantile))[self.pool.kind]

    def _losses(self, work_s: Floats) -> Floats:
        return self.pool.hazard_s * work_s / self.progress

    def _per_kind(self, quantile: str) -> Floats:
        column = np.ones(len(self.pool.market.listing.kinds))
        for kind, estimate in self.estimates.items():
            column[kind] = getattr(estimate, quantile)
        return column

    @cached_property
    def _site_setback_s(self) -> Floats:
        return self.pool.market.site_startup_s + interval_s(self.demand) / 2

    def _from_here(self, by_site: Floats) -> Floats:
        """A column of what it takes to get to each site: nothing where the job is."""
        column = by_site[self.pool.site]
        if self.current is not None and self.current in self.pool:
            column[self.pool.at(self.current)] = 0.0
        return column


def interval_s(demand: Demand) -> float:
    """Seconds between two checkpoints, so that saving takes the allowed share of the time."""
    return min(demand.checkpoint_s / max(demand.job.spec.checkpoint.max_overhead, 1e-3), _MAX_INTERVAL_S)


def forecast(demand: Demand, pool: Pool, perf: PerfBook, running: Running | None, current: int | None) -> Outlook:
    """The outlook over a pool. `current` is the row where the job runs and could stay; it must be in the pool."""
    estimates = _estimates(demand, pool, perf, {})
    if demand.total_steps is not None:
        steps_left = float(max(demand.total_steps - demand.done_steps, 0))
    else:
        steps_left = ASSUMED_HORIZON_S * max((estimate.value for estimate in estimates.values()), default=0.0)
    way = tolls(demand, pool.market, running, current, interval_s(demand))
    return Outlook(pool, demand, perf, estimates, way, steps_left, current)


def _estimates(demand: Demand, pool: Pool, perf: PerfBook, known: Mapping[int, Estimate]) -> Mapping[int, Estimate]:
    kinds, estimates = pool.market.listing.kinds, {}
    for code in pool.kinds:
        gpu, count = kinds[code]
        estimates[code] = known[code] if code in known else perf.estimate_kind(demand.job.id, gpu, count)
    return estimates
