"""Forecast: the cost and time to finish a job on each offer, expected and at the 5th and 95th percentile.
On one machine, `work` seconds of training (checkpoints included) suffer hazard x time losses. Each loss costs a
start-up and the work since the last checkpoint, during which the machine may be lost again:

    work    = steps left / (steps per second) x (1 + checkpoint overhead)
    losses  = hazard x work / (1 - hazard x setback)             setback = start-up + half a checkpoint interval
    seconds = begin + work + losses x setback
    cost    = mean price x (seconds billed, at least the minimum) + storage x seconds + egress x starts

`begin` is 0 where the job already runs, the start-up for a job that is not running, and only the gap for a move: the
source keeps training while the target starts, and both are billed. The mean price is the one expected over the seconds
billed (market.price_forecast), not the present price. The interval of the cost follows from that of the throughput and
from the Poisson percentiles of the losses.

Columns are over the rows or the cells of a pool (pool.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import QUANTILES, Quantile
from orchestrator.market.cached_property import cached_property
from orchestrator.model import CostParts, Estimate, Evidence
from orchestrator.perf import PerfBook, kind_of
from orchestrator.policy.demand import Demand, Running, Underway
from orchestrator.policy.probe import LONGEST_PROBE_S
from orchestrator.policy.ranking.pool import Floats, Pool, Rows
from orchestrator.policy.ranking.transition_costs import TransitionCosts, transition_costs

Z95 = 1.6449  # standard normal quantile of 95 %
ASSUMED_HORIZON_S = 86_400.0  # for a job whose number of steps or speed is not known yet
_MIN_PROGRESS = 0.1  # hazard x setback takes at most 90 % of the time: the formula has a pole at 100 %
_MAX_INTERVAL_S = 3_600.0


@dataclass(frozen=True, eq=False)
class Case:
    """The job's course at one percentile. Times are seconds of market time; amounts are nano-USD as floats.

    Over the cells: `run_s` is the time to finish once the job trains there, `cell_seconds` also includes getting there
    from where the job is, and `billed_s` is the total time the machine is billed for. `run_charges` are storage and
    egress during `run_s`; `charges` also include those of getting there. Over the rows: `seconds`, `cost`.
    """

    pool: Pool
    losses: Floats
    run_s: Floats
    run_charges: Floats
    cell_seconds: Floats
    billed_s: Floats
    charges: Floats
    deviations: float = 1.0  # how many standard deviations higher an old price counts

    @cached_property
    def price_s(self) -> Floats:
        """The mean price over the billed time, in nano-USD per second, over the rows."""
        drift, price_s = self.pool.drift, self.pool.mean_price_s(self.billed_s)
        if drift is None or self.deviations == 1.0:
            return price_s
        return price_s * np.exp((self.deviations - 1.0) * drift)

    @cached_property
    def seconds(self) -> Floats:
        """Market seconds until the job is done, over the rows."""
        return self.pool.over_rows(self.cell_seconds)

    @cached_property
    def cost(self) -> Floats:
        """nano-USD until the job is done, over the rows."""
        return self.price_s * self.pool.over_rows(self.billed_s) + self.pool.over_rows(self.charges)


class Figures(NamedTuple):
    """The forecast of one row, at position `at` of the pool; see Case and Forecast."""

    at: int
    losses: float
    run_s: float
    run_charges: float
    begin_s: float
    move_billed_s: float
    move_fixed: float


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of one job over a pool. `mid`, `low` and `high` are computed when first used.

    Over the cells (`over_rows` converts to rows): `begin_s` is the time without training while the job gets to an
    offer. Getting there costs `move_billed_s` at the target's price, plus `move_fixed`. `setback_s` is the time that a
    loss takes.

    `known` is False if the number of steps is missing, or any evidence of the job's speed (then `speed_known` is False,
    too). The amount of work is then assumed: only ratios are meaningful, and no time or cost may be shown or checked
    against limits.

    For a `move` that has begun, only its remaining steps count. `since_s` is the time that the job has trained on its
    present machine.
    """

    pool: Pool
    demand: Demand
    perf: PerfBook
    estimates: Mapping[int, Estimate]
    transition_costs: TransitionCosts
    steps_left: float
    evidence: Evidence
    move: Underway | None = None
    since_s: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the number of steps and the job's speed are known."""
        return self.demand.total_steps is not None and self.speed_known

    @property
    def whole(self) -> float:
        """The job's whole work as a multiple of the remaining work."""
        return max((self.demand.total_steps or 0) / max(self.steps_left, 1.0), 1.0)

    @property
    def speed_known(self) -> bool:
        """Whether there is any evidence of the job's speed on the pool's kinds of hardware."""
        return self.evidence != "none"

    @cached_property
    def measurable(self) -> NDArray[np.bool_]:
        """Over the rows: whether the job's speed there is unknown and would soon be measured.

        If the job has trained on its machine for longer than a measurement takes, it will no longer be measured there.
        """
        if self.pool.current is None or self.since_s < LONGEST_PROBE_S:
            return self.unmeasured
        return np.asarray(self.unmeasured & (self.pool.rows != self.pool.current))

    @cached_property
    def unmeasured(self) -> NDArray[np.bool_]:
        """Over the rows: whether the job was not measured on the row's kind of hardware."""
        kinds, column = self.pool.market.listing.kinds, np.zeros(len(self.pool.market.listing.kinds), np.bool_)
        column[self.pool.kinds] = [not self.perf.measured(self.demand.job, kinds[code]) for code in self.pool.kinds]
        return column[self.pool.kind][self.pool.cell]

    def over(self, rows: Iterable[int]) -> Forecast:
        """The same forecast over at least these rows of the market, given in any order."""
        if self.pool.small and self.pool.whole:
            return self
        rows = set(rows)
        for known in (self, *self._wider):
            if known.pool.has(rows):
                return known
        if self.pool.around is not None:
            rows.update(self.pool.around.tolist())
        wanted = sorted(rows)
        current, target = (row if row in wanted else None for row in (self.pool.current, self.pool.target))
        pool = Pool(self.pool.market, np.array(wanted, np.int64), current, target, self.pool.setup_s)
        estimates = self.estimates
        if not estimates.keys() >= set(pool.kind.tolist()):
            estimates = estimated(self.demand, pool, self.perf, estimates)
        same = self.transition_costs, self.steps_left, self.evidence, self.move, self.since_s
        wider = Forecast(pool, self.demand, self.perf, estimates, *same)
        if self.pool.around is not None:
            self._wider.append(wider)
        return wider

    @cached_property
    def _wider(self) -> list[Forecast]:
        return []

    def mean_price_s(self, share: float) -> Floats:
        """The expected mean price (nano-USD per second) while this share of the work is done, over the rows. Kept by
        share, so that rows compared over the same share use one column."""
        if share not in self._mean_prices_s:
            self._mean_prices_s[share] = self.pool.mean_price_s(share * self.mid.run_s)
        return self._mean_prices_s[share]

    @cached_property
    def _mean_prices_s(self) -> dict[float, Floats]:
        return {}

    def figures(self, row: int) -> Figures:
        """The forecast of one row of the pool."""
        if row not in self._figures:
            at, mid = self.pool.at(row), self.mid
            columns = (mid.losses, mid.run_s, mid.run_charges, self.begin_s, self.move_billed_s, self.move_fixed)
            cell = self.pool.cell.item(at)
            self._figures[row] = Figures(at, *(column.item(cell) for column in columns))
        return self._figures[row]

    @cached_property
    def _figures(self) -> dict[int, Figures]:
        return {}

    @cached_property
    def moves(self) -> dict[tuple[int, int], Any]:
        """A cache for gate.py: results for moves between two rows."""
        return {}

    def over_rows(self, column: Floats) -> Floats:
        """A column over the cells, as a column over the rows."""
        return self.pool.over_rows(column)

    def throughput(self, row: int) -> Estimate:
        """Steps per market second on a row's kind of hardware."""
        return self.estimates[int(self.pool.market.listing.kind[row])]

    def relative_speed(self, row: int) -> Estimate:
        """The speed of a row's hardware relative to a fixed kind. Nothing else is known about an unmeasured job's
        speed."""
        return self.perf.relative(
            self.demand.job, self.pool.market.listing.kinds[int(self.pool.market.listing.kind[row])]
        )

    @property
    def overhead(self) -> float:
        """The share of the training time that checkpoints are assumed to take: all that the job file allows, or more if
        a save takes so long that an interval of an hour is not enough. 0 for a job that allows no checkpoints (no job
        file does)."""
        allowed = self.demand.job.spec.checkpoint.max_overhead
        return max(allowed, self.demand.checkpoint_s / _MAX_INTERVAL_S) if allowed > 0 else 0.0

    @cached_property
    def rate(self) -> Floats:
        """Steps per market second, over the cells."""
        return self._rates["value"]

    @property
    def longest_step_s(self) -> Floats:
        """Market seconds that a step takes at the 95th percentile, over the rows."""
        return self.over_rows(1 / self._rates["low"])

    @cached_property
    def setback_s(self) -> Floats:
        """Market seconds lost with each machine: a start-up and half a checkpoint interval, over the cells."""
        return self.pool.start_s + interval_s(self.demand) / 2

    @cached_property
    def begin_s(self) -> Floats:
        """Market seconds without training while the job gets to an offer, over the cells."""
        return self._less(self.way_s + self.pool.startup_s * self.transition_costs.waits, self._restored)

    @cached_property
    def move_billed_s(self) -> Floats:
        """Market seconds for which the new machine is billed before it trains, over the cells."""
        return self._less(self.way_s + self.pool.startup_s, self._ready, self.begin_s)

    @cached_property
    def move_fixed(self) -> Floats:
        """nano-USD for getting to an offer in addition to its machine's price, over the cells."""
        return self._less(self.pool.over_sites(self.transition_costs.fixed) + self._storage, self._restored)

    @cached_property
    def _storage(self) -> Floats:
        """nano-USD for the new machine's disk and checkpoint storage while it starts."""
        return self.transition_costs.storage_s[self.pool.site] * self.pool.startup_s

    @cached_property
    def way_s(self) -> Floats:
        """Market seconds without training while the checkpoint is transferred to an offer, over the cells."""
        return self.pool.over_sites(self.transition_costs.begin_s)

    @property
    def _ready(self) -> int | None:
        """The cell of the machine that the move has started; None if it has not."""
        return self.pool.there if self.move is not None and self.move.ready else None

    @property
    def _restored(self) -> int | None:
        """The cell of the machine that has restored the checkpoint; None if none has."""
        return self.pool.there if self.move is not None and self.move.restored else None

    @staticmethod
    def _less(column: Floats, cell: int | None, rest: Floats | None = None) -> Floats:
        """`column` with `rest` (default 0) in a cell that is already paid for. Changes `column` in place."""
        if cell is not None:
            column[cell] = 0.0 if rest is None else rest[cell]
        return column

    @cached_property
    def progress(self) -> Floats:
        """The share of the time not spent on recovering from losses, over the cells."""
        return np.maximum(1 - self.pool.hazard_s * self.setback_s, _MIN_PROGRESS)

    @cached_property
    def per_step(self) -> Floats:
        """nano-USD per step while training, over the rows."""
        return self.mid.price_s * self.over_rows((1 + self.overhead) / (self.rate * self.progress))

    @cached_property
    def mid(self) -> Case:
        """The expected course."""
        work_s = self._work_s("value")
        return self._case(work_s, self._losses(work_s))

    @cached_property
    def low(self) -> Case:
        """The course at the 5th percentile of time and cost."""
        work_s = self._work_s("high")
        losses = self._losses(work_s)
        return self._case(work_s, np.maximum(losses - Z95 * np.sqrt(losses), 0), -Z95)

    @property
    def work_range_s(self) -> tuple[Floats, Floats]:
        """(5th, 95th percentile) of the work in market seconds, over the cells. At the 5th, checkpoints take no time;
        at the 95th, all the time that they may take."""
        return self._work_s("high") / (1 + self.overhead), self._work_s("low")

    @cached_property
    def high(self) -> Case:
        """The course that limits are checked against, stricter than the 95th percentile (`spread`)."""
        # A spot machine that can be lost counts as lost at least once: an offer must still meet its limits after one
        # loss.
        most = np.where(self.pool.hazard_s > 0, np.maximum(self._most_losses, 1), 0)
        return self._case(self._work_s("low"), most, Z95)

    @cached_property
    def at_95(self) -> Case:
        """The course at the 95th percentile of time and cost."""
        return self._case(self._work_s("low"), self._most_losses, Z95)

    @cached_property
    def _most_losses(self) -> Floats:
        """The 95th percentile of the losses, over the cells."""
        losses = self._losses(self._work_s("low"))
        return losses + Z95 * np.sqrt(losses)

    def afresh_s(self, case: Case, positions: Rows | slice = slice(None)) -> Floats:
        """Market seconds to start on an offer without a running machine and finish there (where the job already runs:
        to continue), over the given positions."""
        return (case.run_s + self.pool.startup_s)[self.pool.cell[positions]]

    def afresh(self, positions: Rows | slice = slice(None)) -> tuple[Floats, Floats]:
        """(seconds, nano-USD) expected for starting without a running machine and finishing, as in `afresh_s`."""
        seconds, charges = self.afresh_s(self.mid, positions), self.mid.run_charges + self._storage
        return seconds, seconds * self.mid.price_s[positions] + charges[self.pool.cell[positions]]

    def parts(self, row: int, later: int = 0) -> CostParts:
        """The parts of the expected cost on a row of the pool, in nano-USD. Their sum is exact.

        `later` is the expected additional cost of using other offers after losses; it is part of the sum.
        """
        at = self.pool.at(row)
        cell, price_s = int(self.pool.cell[at]), float(self.mid.price_s[at])
        losses, run_s, billed_s = (float(each[cell]) for each in (self.mid.losses, self.mid.run_s, self.mid.billed_s))
        move_s, site = float(self.move_billed_s[cell]), int(self.pool.site[cell])
        work_s = run_s - losses * float(self.setback_s[cell])
        settled = cell in (self.pool.here, self._restored)
        double = 0.0 if settled else float(self.transition_costs.double[site] + self._storage[cell])
        storage = round(float(self.transition_costs.storage_s[site]) * run_s)
        total = round(float(self.mid.cost[at])) + later
        checkpoint = round(price_s * work_s * self.overhead / (1 + self.overhead))
        preemption = round(price_s * losses * float(self.setback_s[cell])) + later
        start = round(price_s * move_s + double)
        egress = round(float(self.mid.charges[cell]) - double) - storage
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
        run_charges = (
            self.transition_costs.upkeep_s[self.pool.site] * run_s
            + self.transition_costs.per_loss[self.pool.site] * losses
        )
        least_s = self._less(self.pool.over_sites(self.transition_costs.minimum_s), self._ready)
        return Case(
            self.pool,
            losses,
            run_s,
            run_charges,
            run_s + self.begin_s,
            np.maximum(run_s + self.move_billed_s, least_s),
            run_charges + self.move_fixed,
            deviations,
        )

    def _work_s(self, quantile: Quantile) -> Floats:
        return self.steps_left * (1 + self.overhead) / self._rates[quantile]

    def _losses(self, work_s: Floats) -> Floats:
        return self.pool.hazard_s * work_s / self.progress

    @cached_property
    def _rates(self) -> dict[Quantile, Floats]:
        """Steps per market second by quantile, over the cells."""
        columns = np.ones((len(QUANTILES), len(self.pool.market.listing.kinds)))
        for kind, estimate in self.estimates.items():
            columns[:, kind] = estimate.value, estimate.low, estimate.high
        return dict(zip(QUANTILES, columns[:, self.pool.kind], strict=True))


def interval_s(demand: Demand) -> float:
    """Market seconds between two checkpoints, such that saving takes the allowed share of the time; at most an hour."""
    return min(demand.checkpoint_s / max(demand.job.spec.checkpoint.max_overhead, 1e-3), _MAX_INTERVAL_S)


def forecast_of(demand: Demand, pool: Pool, perf: PerfBook, running: Running | None) -> Forecast:
    """The forecast of a job over a pool."""
    estimates = estimated(demand, pool, perf, {})
    evidence = evidence_of(demand, pool, perf)
    if demand.total_steps is not None and evidence != "none":
        steps_left = float(max(demand.total_steps - demand.done_steps, 0))
    else:
        steps_left = ASSUMED_HORIZON_S * max((estimate.value for estimate in estimates.values()), default=0.0)
    move = None if running is None or pool.target is None else running.move
    since_s = 0.0 if running is None or pool.current is None else (pool.market.at - running.since_ms) / 1000
    costs = _transition_costs(demand, pool, running)
    return Forecast(pool, demand, perf, estimates, costs, steps_left, evidence, move, since_s)


def _transition_costs(demand: Demand, pool: Pool, running: Running | None) -> TransitionCosts:
    """The job's transition costs. Most jobs that share a pool share these, too."""
    pause_s, spec = interval_s(demand), demand.job.spec
    if running is not None:
        return transition_costs(demand, pool.market, running, pool.current, pause_s)
    kept = (demand.checkpoint_at, demand.store_root, demand.checkpoint_bytes, demand.started)
    key = (*kept, pause_s, spec.data, spec.checkpoint)
    if key not in pool.known_transition_costs:
        pool.known_transition_costs[key] = transition_costs(demand, pool.market, None, None, pause_s)
    return pool.known_transition_costs[key]


def evidence_of(demand: Demand, pool: Pool, perf: PerfBook) -> Evidence:
    """The best evidence of the job's speed on the kinds of hardware in a pool."""
    kinds = pool.market.listing.kinds
    return perf.evidence(demand.job, (kind_of(*kinds[code]) for code in pool.kinds))


def estimated(demand: Demand, pool: Pool, perf: PerfBook, known: Mapping[int, Estimate]) -> Mapping[int, Estimate]:
    """Throughput (steps per market second) on each kind in a pool; those in `known` are not estimated again."""
    asked = [code for code in pool.kinds if code not in known]
    kinds = pool.market.listing.kinds
    found = perf.estimate_kinds(demand.job, [kind_of(*kinds[code]) for code in asked]) if asked else ()
    return {**{code: known[code] for code in pool.kinds if code in known}, **dict(zip(asked, found, strict=True))}
