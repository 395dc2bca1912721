"""Forecast: what finishing a job on each offer would cost and take, expected and at the 5th and 95th percentile.

On one machine, `work` seconds of training (checkpoints included) are hit by hazard x time losses; each of them costs a
start-up and the work since the last checkpoint, during which it may happen again:

    work    = steps left / (steps per second) x (1 + checkpoint overhead)
    losses  = hazard x work / (1 - hazard x setback)             setback = start-up + half a checkpoint interval
    seconds = begin + work + losses x setback
    cost    = mean price x (seconds billed, at least the minimum) + storage x seconds + egress x starts

`begin` is 0 where the job already runs, the start-up for a job that runs nowhere, and for a move only the gap: the
source trains on while the target starts, at the price of billing both. The mean price is what is expected over the
seconds billed (market.ahead), not the price of the moment. The interval of the cost follows from that of the throughput
and from the Poisson percentiles of the losses.

Columns are computed over the rows that are asked for and no others: those that a job may use, or the few that are
shown. What depends on the site or on the kind of hardware alone is worked out once per site or kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import PRIOR_LOSSES, Ahead, Market
from orchestrator.model import CostParts, Estimate
from orchestrator.perf import PerfBook, kind_of
from orchestrator.policy.demand import Demand, Running, Underway
from orchestrator.policy.ranking.transition_costs import TransitionCosts, transition_costs

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

Z95 = 1.6449  # standard normal quantile of 95 %
ASSUMED_HORIZON_S = 86_400.0  # of a job whose number of steps, or speed, is not known yet
_MIN_PROGRESS = 0.1  # hazard x setback never eats more than 90 % of the time: the formula's pole lies at 100 %
_MAX_INTERVAL_S = 3_600.0
_FEW = 256  # rows of a pool that are found through a dictionary


class Pool:
    """Rows of a market, ascending, and their cells; jobs that may use the same rows share it.

    Over the rows: `rows`, `cell`, `spot`, `price_s` (nano-USD per second, 0 without a known price; an old one counts
    one standard deviation higher, because of many old prices those that look cheapest are those that have most likely
    risen). Over the cells: `site`, `kind`, `hazard_s` (losses per second). The row where a job is (`current`, one of
    the rows) has a cell of its own, `here`, and so has the one to which it is on its way (`target`), `there`. `setup_s`
    is what setting the job's environment up adds to each start.
    """

    def __init__(
        self,
        market: Market,
        rows: Rows,
        current: int | None = None,
        target: int | None = None,
        setup_s: float = 0.0,
    ) -> None:
        self.market = market
        self.setup_s = setup_s
        self.rows = rows
        self.current = current
        self.target = target
        self.known_tolls: dict[Hashable, TransitionCosts] = {}
        self.of_all: slice | Rows = slice(None) if len(rows) == len(market) else rows  # picks its rows from a column
        if len(rows) <= _FEW:
            self.cell = np.arange(len(rows))
            self.site, self.kind = market.listing.site[rows], market.listing.kind[rows]
            self.hazard_s = market.hazard[rows] / 3600
        elif len(rows) == len(market):
            cells = market.cells
            self.cell = cells.of_row if current is None and target is None else cells.of_row.copy()
            self.site, self.kind, self.hazard_s = cells.site, cells.kind, cells.hazard / 3600
        else:
            cells = market.cells
            of_row = cells.of_row[self.of_all]
            occur = np.zeros(len(cells.site), np.bool_)
            occur[of_row] = True
            used = np.flatnonzero(occur)
            number = np.empty(len(cells.site), np.int64)
            number[used] = np.arange(len(used))
            self.cell = number[of_row]
            self.site, self.kind, self.hazard_s = cells.site[used], cells.kind[used], cells.hazard[used] / 3600
        self.here = None if current is None else self._own_cell(current)
        self.there = None if target is None else self._own_cell(target)

    def _own_cell(self, row: int) -> int:
        at = self.at(row)
        old, own = int(self.cell[at]), len(self.site)
        self.cell[at] = own
        self.site, self.kind = np.append(self.site, self.site[old]), np.append(self.kind, self.kind[old])
        self.hazard_s = np.append(self.hazard_s, self.hazard_s[old])
        return own

    @cached_property
    def kinds(self) -> list[int]:
        """The kinds of hardware among the rows."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.market.listing.kinds))).tolist()

    @cached_property
    def price_s(self) -> Floats:
        price_s: Floats = np.maximum(self.market.price[self.of_all], 0) / 3600
        return price_s if self.drift is None else price_s * np.exp(self.drift)

    @cached_property
    def drift(self) -> Floats | None:
        """One standard deviation of the logarithm of each price, for its age; None while all are fresh."""
        drift = self.market.drift
        return None if drift is None else drift[self.of_all]

    @cached_property
    def spot(self) -> NDArray[np.bool_]:
        return self.market.spot[self.of_all]

    @cached_property
    def startup_s(self) -> Floats:
        """Seconds from a launch to a ready trainer, by cell; 0 where the job is."""
        return self.from_here(self.start_s)

    @cached_property
    def start_s(self) -> Floats:
        """The same, also where the job is: of another machine there."""
        return self.market.start_s(self.site, self.kind) + self.setup_s

    @cached_property
    def start_low_s(self) -> Floats:
        """Its 5th percentile."""
        return self.market.start_s(self.site, self.kind, "low") + self.setup_s / 2

    @cached_property
    def start_high_s(self) -> Floats:
        """Its 95th percentile."""
        return self.market.start_s(self.site, self.kind, "high") + self.setup_s * 2

    @cached_property
    def losses_known(self) -> Floats:
        """By cell, from how many losses the hazard is known, the one of the prior included."""
        column = np.full(len(self.site), PRIOR_LOSSES)
        column[self.cell] = PRIOR_LOSSES + self.market.losses[self.of_all]
        return column

    @cached_property
    def ahead(self) -> Ahead:
        """How the prices of the rows will go."""
        return self.market.ahead(self.of_all)

    def mean_price_s(self, seconds: Floats) -> Floats:
        """`price_s` as it is expected to be on average over so much time, which is by cell."""
        return self.price_s if self.ahead.stays else self.price_s * self.ahead.mean(seconds, self.cell)

    def over_sites(self, by_site: Floats) -> Floats:
        """Over the cells, what it takes to get to each site: nothing where the job is."""
        return self.from_here(by_site[self.site])

    def from_here(self, column: Floats) -> Floats:
        """A column over the cells with nothing where the job is."""
        column = column.copy()
        if self.here is not None:
            column[self.here] = 0.0
        return column

    def at(self, row: int) -> int:
        """The position of a market row. It must be one of the pool."""
        return self._at[row] if len(self.rows) <= _FEW else int(np.searchsorted(self.rows, row))

    @cached_property
    def _at(self) -> dict[int, int]:
        return {row: position for position, row in enumerate(self.rows.tolist())}


@dataclass(frozen=True, eq=False)
class Case:
    """How it goes at one percentile. Seconds of market time, nano-USD as floats.

    Over the cells: `run_s` is finishing once it trains there, `cell_seconds` includes getting there from where the job
    is, `billed_s` is what the machine is billed for all in all. `run_dues` are storage and egress meanwhile, `dues`
    with those of getting there. Over the rows: `seconds`, `cost`.
    """

    pool: Pool
    losses: Floats
    run_s: Floats
    run_dues: Floats
    cell_seconds: Floats
    billed_s: Floats
    dues: Floats
    deviations: float = 1.0  # by which a price that is old may have moved

    @cached_property
    def price_s(self) -> Floats:
        """The mean over what is billed."""
        drift, price_s = self.pool.drift, self.pool.mean_price_s(self.billed_s)
        if drift is None or self.deviations == 1.0:
            return price_s
        return price_s * np.exp((self.deviations - 1.0) * drift)

    @cached_property
    def seconds(self) -> Floats:
        return self.cell_seconds[self.pool.cell]

    @cached_property
    def cost(self) -> Floats:
        cost = self.price_s * self.billed_s[self.pool.cell]
        return cost + self.dues[self.pool.cell] if self.dues.any() else cost


@dataclass(frozen=True, eq=False)
class Forecast:
    """What to expect of one job over a pool: `mid`, `low` and `high` are made when first asked for.

    While it gets to an offer, training stands still for `begin_s`; that costs `move_billed_s` at the target's price and
    `move_fixed` besides. `setback_s` is what a loss takes. These are over the cells; `over_rows` spreads them. With
    `known` false the amount of work is assumed, because the number of steps or any evidence of the job's speed is
    missing (`speed_known` false): only ratios mean something, and nothing of time or money may be told or promised. Of
    a `move` that has begun only the rest counts.
    """

    pool: Pool
    demand: Demand
    perf: PerfBook
    estimates: Mapping[int, Estimate]
    transition_costs: TransitionCosts
    steps_left: float
    move: Underway | None = None

    @property
    def known(self) -> bool:
        return self.demand.total_steps is not None and self.speed_known

    @cached_property
    def speed_known(self) -> bool:
        return self.perf.evidence(self.demand.job) != "none"

    def over(self, rows: Iterable[int]) -> Forecast:
        """The same outlook over other rows of the market, in any order."""
        wanted = sorted(set(rows))
        current, target = (row if row in wanted else None for row in (self.pool.current, self.pool.target))
        pool = Pool(self.pool.market, np.array(wanted, np.int64), current, target, self.pool.setup_s)
        estimates = self.estimates
        if not estimates.keys() >= set(pool.kind.tolist()):
            estimates = estimated(self.demand, pool, self.perf, estimates)
        return Forecast(pool, self.demand, self.perf, estimates, self.transition_costs, self.steps_left, self.move)

    def over_rows(self, column: Floats) -> Floats:
        """A column over the cells as one over the rows."""
        return column[self.pool.cell]

    def throughput(self, row: int) -> Estimate:
        """Steps per market second on a row's kind of hardware."""
        return self.estimates[int(self.pool.market.listing.kind[row])]

    def relative_speed(self, row: int) -> Estimate:
        """How fast a row's kind of hardware is beside a fixed one: all that is known of a job that was not measured."""
        return self.perf.relative(
            self.demand.job, self.pool.market.listing.kinds[int(self.pool.market.listing.kind[row])]
        )

    @property
    def overhead(self) -> float:
        """The share of time that checkpoints may take."""
        return self.demand.job.spec.checkpoint.max_overhead

    @cached_property
    def rate(self) -> Floats:
        """Steps per second."""
        return self._per_kind("value")

    @cached_property
    def setback_s(self) -> Floats:
        return self.pool.start_s + interval_s(self.demand) / 2

    @cached_property
    def begin_s(self) -> Floats:
        return self._less(self._way_s + self.pool.startup_s * self.transition_costs.waits, self._restored)

    @cached_property
    def move_billed_s(self) -> Floats:
        return self._less(self._way_s + self.pool.startup_s, self._ready, self.begin_s)

    @cached_property
    def move_fixed(self) -> Floats:
        return self._less(self.pool.over_sites(self.transition_costs.fixed) + self._storage, self._restored)

    @cached_property
    def _storage(self) -> Floats:
        """What the new machine's disk and the room for its checkpoints cost while it starts."""
        return self.transition_costs.storage_s[self.pool.site] * self.pool.startup_s

    @cached_property
    def _way_s(self) -> Floats:
        return self.pool.over_sites(self.transition_costs.begin_s)

    @property
    def _ready(self) -> int | None:
        """The cell of the machine that the move has started; None before that."""
        return self.pool.there if self.move is not None and self.move.ready else None

    @property
    def _restored(self) -> int | None:
        """The cell of the machine to which the move has brought the checkpoint; None before that."""
        return self.pool.there if self.move is not None and self.move.restored else None

    @staticmethod
    def _less(column: Floats, cell: int | None, rest: Floats | None = None) -> Floats:
        """`column` with only the `rest` in a cell that was paid for."""
        if cell is not None:
            column[cell] = 0.0 if rest is None else rest[cell]
        return column

    @cached_property
    def progress(self) -> Floats:
        """The share of the time that is not spent on making up for losses."""
        return np.maximum(1 - self.pool.hazard_s * self.setback_s, _MIN_PROGRESS)

    @cached_property
    def per_step(self) -> Floats:
        """nano-USD per step once it trains, over the rows."""
        return self.mid.price_s * self.over_rows((1 + self.overhead) / (self.rate * self.progress))

    @cached_property
    def mid(self) -> Case:
        work_s = self._work_s("value")
        return self._case(work_s, self._losses(work_s))

    @cached_property
    def low(self) -> Case:
        work_s = self._work_s("high")
        losses = self._losses(work_s)
        return self._case(work_s, np.maximum(losses - Z95 * np.sqrt(losses), 0), -Z95)

    @property
    def work_range_s(self) -> tuple[Floats, Floats]:
        """By cell, the 5th and 95th percentile of the work, checkpoints taking nothing or all that they may."""
        return self._work_s("high") / (1 + self.overhead), self._work_s("low")

    @cached_property
    def high(self) -> Case:
        # What promises are measured by, more than the 95th percentile (`spread`): a spot machine that can be lost is
        # taken to be lost once at least, for a promise that does not survive the first loss is none.
        work_s = self._work_s("low")
        losses = self._losses(work_s)
        most = np.maximum(losses + Z95 * np.sqrt(losses), 1)
        return self._case(work_s, np.where(self.pool.hazard_s > 0, most, 0), Z95)

    def afresh(self, case: Case) -> tuple[Floats, Floats]:
        """(seconds, cost) over the rows of starting there from nowhere; on the current row of going on."""
        seconds = self.over_rows(case.run_s + self.pool.startup_s)
        dues = case.run_dues + self._storage
        return seconds, seconds * case.price_s + self.over_rows(dues)

    def parts(self, row: int) -> CostParts:
        """What the expected cost on a row of the pool consists of; the sum is exact."""
        at = self.pool.at(row)
        cell, price_s = int(self.pool.cell[at]), float(self.mid.price_s[at])
        losses, run_s, billed_s = (float(each[cell]) for each in (self.mid.losses, self.mid.run_s, self.mid.billed_s))
        move_s, site = float(self.move_billed_s[cell]), int(self.pool.site[cell])
        work_s = run_s - losses * float(self.setback_s[cell])
        settled = cell in (self.pool.here, self._restored)
        double = 0.0 if settled else float(self.transition_costs.double[site] + self._storage[cell])
        storage = round(float(self.transition_costs.storage_s[site]) * run_s)
        total = round(float(self.mid.cost[at]))
        checkpoint = round(price_s * work_s * self.overhead / (1 + self.overhead))
        preemption = round(price_s * losses * float(self.setback_s[cell]))
        start = round(price_s * move_s + double)
        egress = round(float(self.mid.dues[cell]) - double) - storage
        minimum = round(price_s * max(billed_s - run_s - move_s, 0.0))
        return CostParts(
            compute_nano_usd=total - checkpoint - preemption - start - egress - storage - minimum,
            checkpoint_nano_usd=checkpoint,
            preemption_nano_usd=preemption,
            start_nano_usd=start,
            egress_nano_usd=egress,
            storage_nano_usd=storage,
            minimum_nano_usd=minimum,
        )

    def _case(self, work_s: Floats, losses: Floats, deviations: float = 1.0) -> Case:
        run_s = work_s + losses * self.setback_s
        run_dues = (
            self.transition_costs.upkeep_s[self.pool.site] * run_s
            + self.transition_costs.per_loss[self.pool.site] * losses
        )
        least_s = self._less(self.pool.over_sites(self.transition_costs.minimum_s), self._ready)
        return Case(
            self.pool,
            losses,
            run_s,
            run_dues,
            run_s + self.begin_s,
            np.maximum(run_s + self.move_billed_s, least_s),
            run_dues + self.move_fixed,
            deviations,
        )

    def _work_s(self, quantile: str) -> Floats:
        return self.steps_left * (1 + self.overhead) / self._per_kind(quantile)

    def _losses(self, work_s: Floats) -> Floats:
        return self.pool.hazard_s * work_s / self.progress

    def _per_kind(self, quantile: str) -> Floats:
        if len(self.estimates) == 1:  # most jobs ask for one kind
            return np.full(len(self.pool.kind), getattr(next(iter(self.estimates.values())), quantile))
        column = np.ones(len(self.pool.market.listing.kinds))
        for kind, estimate in self.estimates.items():
            column[kind] = getattr(estimate, quantile)
        return column[self.pool.kind]


def interval_s(demand: Demand) -> float:
    """Seconds between two checkpoints, so that saving takes the allowed share of the time."""
    return min(demand.checkpoint_s / max(demand.job.spec.checkpoint.max_overhead, 1e-3), _MAX_INTERVAL_S)


def forecast_of(demand: Demand, pool: Pool, perf: PerfBook, running: Running | None) -> Forecast:
    """The outlook over a pool."""
    estimates = estimated(demand, pool, perf, {})
    if demand.total_steps is not None and perf.evidence(demand.job) != "none":
        steps_left = float(max(demand.total_steps - demand.done_steps, 0))
    else:
        steps_left = ASSUMED_HORIZON_S * max((estimate.value for estimate in estimates.values()), default=0.0)
    move = None if running is None or pool.target is None else running.move
    return Forecast(pool, demand, perf, estimates, _tolls(demand, pool, running), steps_left, move)


def _tolls(demand: Demand, pool: Pool, running: Running | None) -> TransitionCosts:
    """Jobs that share a pool mostly share their tolls too."""
    pause_s, spec = interval_s(demand), demand.job.spec
    if running is not None:
        return transition_costs(demand, pool.market, running, pool.current, pause_s)
    key = (demand.checkpoint_at, demand.checkpoint_bytes, demand.started, pause_s, spec.data, spec.checkpoint)
    if key not in pool.known_tolls:
        pool.known_tolls[key] = transition_costs(demand, pool.market, None, None, pause_s)
    return pool.known_tolls[key]


def estimated(demand: Demand, pool: Pool, perf: PerfBook, known: Mapping[int, Estimate]) -> Mapping[int, Estimate]:
    """Throughput on each kind of hardware in a pool; `known` ones are not asked for again."""
    asked = [code for code in pool.kinds if code not in known]
    kinds = pool.market.listing.kinds
    found = perf.estimate_kinds(demand.job, [kind_of(*kinds[code]) for code in asked]) if asked else ()
    return {**{code: known[code] for code in pool.kinds if code in known}, **dict(zip(asked, found, strict=True))}
