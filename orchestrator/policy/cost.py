"""Outlook: what finishing a job on each offer would cost and take, expected and at the 10th and 90th percentile.

On one machine, `work` seconds of training (checkpoints included) are hit by hazard x time losses; each of them costs a
start-up and the work since the last checkpoint, during which it may happen again:

    seconds = begin + work / (1 - hazard x setback)          losses = hazard x work / (1 - hazard x setback)

`begin` is 0 where the job already runs, the start-up for a job that runs nowhere, and for a move only the gap: the
source trains on while the target starts, at the price of billing both.

Must not know: objectives, constraints, whether an offer may be used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market, egress_nano_usd
from orchestrator.model import Estimate
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, Running

Floats = NDArray[np.float64]

Z90 = 1.2816  # standard normal quantile of 90 %
LINK_BYTES_PER_S = 125e6  # 1 Gbit/s between regions
ASSUMED_HORIZON_S = 86_400.0  # of a job whose number of steps is not known yet
_MIN_PROGRESS = 0.1  # hazard x setback never eats more than 90 % of the time: the formula's pole lies at 100 %
_MAX_INTERVAL_S = 3_600.0


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A column with its 10th and 90th percentile."""

    low: Floats
    mid: Floats
    high: Floats

    def __add__(self, column: Floats) -> Band:
        return Band(self.low + column, self.mid + column, self.high + column)

    def __mul__(self, column: Floats) -> Band:
        return Band(self.low * column, self.mid * column, self.high * column)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Columns over the market's rows; seconds of market time, nano-USD as floats (estimates, not accounts).

    `run_*` is finishing once it trains there, `seconds` and `cost` include getting there from where the job is,
    `fresh_*` starting there from nowhere (on the current row: going on). While it gets there, training stands still for
    `begin_s`; that costs `move_billed_s` at the target's price and `move_fixed` besides. `setback_s` is what a loss
    takes. With `known` false the number of steps is assumed and only ratios mean something.
    """

    known: bool
    kinds: tuple[Estimate, ...]
    kind_of: NDArray[np.int64]
    rate: Floats
    per_step: Floats
    losses: Floats
    setback_s: Floats
    begin_s: Floats
    move_billed_s: Floats
    move_fixed: Floats
    run_s: Band
    run_cost: Band
    seconds: Band
    cost: Band
    fresh_s: Band
    fresh_cost: Band

    def throughput(self, row: int) -> Estimate:
        """Steps per market second on a row's kind of hardware."""
        return self.kinds[int(self.kind_of[row])]


def forecast(demand: Demand, market: Market, perf: PerfBook, running: Running | None, current: int | None) -> Outlook:
    """The outlook of every offer. `current` is the row where the job runs and could stay."""
    kinds, kind_of = _throughputs(demand, market, perf)
    slow, rate, fast = (np.array([getattr(kind, p) for kind in kinds])[kind_of] for p in ("low", "value", "high"))
    overhead = demand.job.spec.checkpoint.max_overhead
    hazard = market.hazard / 3600
    interval_s = min(demand.checkpoint_s / max(overhead, 1e-3), _MAX_INTERVAL_S)
    setback_s = market.startup_s + interval_s / 2
    progress = np.maximum(1 - hazard * setback_s, _MIN_PROGRESS)

    work = _steps_left(demand, rate) * (1 + overhead)
    losses = Band(*(hazard * work / r / progress for r in (fast, rate, slow)))
    # Poisson percentiles. A spot machine that can be lost is taken to be lost once at least: a promise that does not
    # survive the first loss is none.
    fewest = np.maximum(losses.low - Z90 * np.sqrt(losses.low), 0)
    most = np.where(hazard > 0, np.maximum(losses.high + Z90 * np.sqrt(losses.high), 1), 0)
    run_s = Band(work / fast + fewest * setback_s, work / rate + losses.mid * setback_s, work / slow + most * setback_s)

    begin_s, move_billed_s, move_fixed = _getting_there(demand, market, running, current)
    price_s = np.maximum(market.price, 0) / 3600
    fresh_s = run_s + np.where(np.arange(len(market)) == current, 0.0, market.startup_s)
    run_cost = run_s * price_s
    return Outlook(
        known=demand.total_steps is not None,
        kinds=kinds,
        kind_of=kind_of,
        rate=rate,
        per_step=price_s * (1 + overhead) / (rate * progress),
        losses=losses.mid,
        setback_s=setback_s,
        begin_s=begin_s,
        move_billed_s=move_billed_s,
        move_fixed=move_fixed,
        run_s=run_s,
        run_cost=run_cost,
        seconds=run_s + begin_s,
        cost=run_cost + (price_s * move_billed_s + move_fixed),
        fresh_s=fresh_s,
        fresh_cost=fresh_s * price_s,
    )


def _throughputs(demand: Demand, market: Market, perf: PerfBook) -> tuple[tuple[Estimate, ...], NDArray[np.int64]]:
    """One estimate per kind of hardware, and the kind of each row."""
    _, first, kind_of = np.unique(market.gpu_kind * 4096 + market.gpu_count, return_index=True, return_inverse=True)
    kinds = tuple(perf.estimate_kind(demand.job, market.gpu(int(row)), int(market.gpu_count[row])) for row in first)
    return kinds, kind_of


def _steps_left(demand: Demand, rate: Floats) -> float:
    if demand.total_steps is not None:
        return float(max(demand.total_steps - demand.done_steps, 0))
    return ASSUMED_HORIZON_S * float(rate.max(initial=0.0))


def _getting_there(
    demand: Demand, market: Market, running: Running | None, current: int | None
) -> tuple[Floats, Floats, Floats]:
    """(seconds without training, seconds billed at the target's price, money besides), 0 on the current row."""
    source = None if running is None else market.row(running.offer_id)
    place = demand.checkpoint_at if source is None else market.place(source)
    size = demand.checkpoint_bytes if demand.started or running is not None else 0
    far = {
        there: (float(egress_nano_usd(place, there, size)), 0.0 if there == place else size / LINK_BYTES_PER_S)
        for there in sorted(set(zip(market.provider, market.region, strict=True)))
        if place is not None
    }
    there = zip(market.provider, market.region, strict=True)
    legs = np.array([far.get(at, (0.0, 0.0)) for at in there]).reshape(-1, 2)
    egress, transfer_s = legs[:, 0], legs[:, 1]
    if current is None:
        begin_s = market.startup_s + transfer_s
        return begin_s, begin_s, egress
    gap_s = 2 * demand.checkpoint_s + transfer_s  # one save, one restore
    billed_s = market.startup_s + gap_s
    fixed = gap_s * float(max(market.price[current], 0)) / 3600 + egress
    for column in (gap_s, billed_s, fixed):
        column[current] = 0.0
    return gap_s, billed_s, fixed
