"""Turns: jobs with different deadlines use the same machines one after the other.

Time is cut into periods at the deadlines. The variables x_mki are the part of period i that job m spends in way k:

    sum_ki  length_mi rate_mk x_mki / steps_m >= 1,   sum_k x_mki <= 1,   and in each period the limits of the supply

A job uses a period only until its deadline. If there is one period only, this is the condition of total_cost.py: each
job's part of the time is constant. With a period between every two deadlines, it is exact: a fluid plan with machines
of constant speed can have constant shares between two deadlines. If there are too many deadlines, some are within a
period. Then each plan found is still possible, and the bound is that of the same program in which such jobs have the
whole period.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.engine import TOLERANCE, Uncertified
from orchestrator.policy.groups.linear import Contradiction, Flags, Linear, OutOfTime, Solution, solve
from orchestrator.policy.groups.policies.total_cost import cheapest_s
from orchestrator.policy.groups.problem import Floats, Integers, alike, summed
from orchestrator.policy.groups.time_limit import TimeLimit

FEWEST, MOST_COLUMNS, MOST_ROWS = 12, 60_000, 4_000
"""Some deadlines are within periods if there are more than FEWEST, and the program would be larger than about this."""
SOON_S = 1.0
"""The shortest time until a deadline, in seconds."""
CLOSE = 1e-6
"""A period is longer than this part of the time until its end."""
NOTHING = 1e-6
"""A smaller part of a job's steps is a rounding error of the solver."""
LATER = 0.01
"""How much more, at most, late work counts the later it is done."""
CUTS, MOST_CUTS = 2, 48
"""How often periods with late work are cut, and how many cuts there are each time, at most."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A plan in which jobs take turns.

    - `now` (jobs, ways): the part of the time that each job spends in each way for the next `holds_s` seconds.
    - `work` (jobs, ways): the part of each job's steps that is done there in all.
    - `ends_s` (jobs,): until when each job is done.
    - `value`: what the plan costs; no plan costs less than `bound`.
    """

    now: Floats
    work: Floats
    ends_s: Floats
    holds_s: float
    value: float
    bound: float


@dataclass(frozen=True, slots=True)
class LateTurns:
    """The plan in which the least part of the steps is late: which jobs are `late` (jobs,), when each job is done
    (`ends_s` (jobs,); its deadline if it is on time, infinite if it has none), and `prices` (quotas,): what part of a
    job's steps one more unit of each quota would make on time."""

    late: Flags
    ends_s: Floats
    prices: Floats


def windows(jobs: Collection) -> Floats:
    """(jobs,): the seconds until each deadline, to the millisecond; infinite if there is none, or nothing left to
    do."""
    return np.where(jobs.steps > 0, np.maximum(jobs.deadline_s.round(3), SOON_S), np.inf)


def takes_turns(jobs: Collection) -> bool:
    """Whether jobs have different deadlines, so that more of them can be on time if they take turns."""
    window_s = windows(jobs)
    return len(np.unique(window_s[np.isfinite(window_s)])) > 1


def cheapest_turns(jobs: Collection, until: TimeLimit) -> Turns:
    """The plan of least total cost. Raises Contradiction and OutOfTime."""
    window_s = _with_horizon(jobs)
    layout = _Layout.of(jobs, window_s, _periods(jobs, window_s), jobs.usd_per_h_started)
    found = layout.within(layout.cost, until)
    bound = found.bound
    if layout.rough:
        outer = layout.outer()
        bound = outer.least(outer.cost, until).bound
    value = max(float(layout.cost @ found.x), bound)
    return layout.turns(layout.early(found.x, until), value, bound)


def due_turns(jobs: Collection, until: TimeLimit) -> Turns:
    """A plan in which all jobs are on time: half of the time, each is as early as possible, those with the nearest
    deadlines first; the other half, jobs with deadlines leave as much of the first period to others as they can. `work`
    and `ends_s` are those of the first half. Raises Contradiction and OutOfTime."""
    window_s = _with_horizon(jobs)
    layout = _Layout.of(jobs, window_s, _periods(jobs, window_s), jobs.usd_per_h)
    early = layout.turns(layout.within(layout.earliness, until).x, 0.0, 0.0)
    patient = layout.least(np.where(layout.period == 0, layout.part, 0.0), until)
    least = layout.turns(patient.x, 0.0, 0.0)
    return replace(early, now=(early.now + least.now) / 2)


def possible(jobs: Collection, until: TimeLimit) -> bool:
    """Whether all jobs can be on time. Raises OutOfTime, also if there are too many deadlines to tell."""
    window_s = windows(jobs)
    if not np.isfinite(window_s).any():
        return True
    layout = _Layout.of(jobs, window_s, _periods(jobs, window_s), jobs.usd_per_h)
    try:
        layout.within(layout.earliness, until)
    except Contradiction:
        return False
    return True


def least_use(jobs: Collection, quota: int, until: TimeLimit) -> tuple[float, Flags]:
    """(the fewest units of one quota with which all jobs can be on time, whatever its limit is; (jobs, ways): where
    jobs then run). Raises Contradiction and OutOfTime."""
    window_s = windows(jobs)
    layout = _Layout.of(jobs, window_s, _periods(jobs, window_s), jobs.usd_per_h)
    every, asked = np.arange(len(layout.cost)), np.ones(len(layout.count))
    unlimited = len(jobs.limits) - len(jobs.quotas) + quota
    found = layout.solved(every, layout.of_class, asked, np.zeros(len(every)), until, unlimited)
    return float(found.x[-1]), layout.turns(found.x[:-1], 0.0, 0.0).work > NOTHING


def least_late(jobs: Collection, until: TimeLimit) -> LateTurns:
    """The plan in which the least part of the steps is late, and that part is as early as possible. Raises OutOfTime.

    Late work can be anywhere in a period. So the periods in which there is some are cut where it could end if it came
    first in the period, and the program is solved again.
    """
    window_s = windows(jobs)
    ends_s = _periods(jobs, window_s)
    ends_s = np.append(ends_s, ends_s[-1] + _all_s(jobs, jobs.steps, np.ones(jobs.rate.shape)))
    layout, found, done = _late(jobs, window_s, ends_s, until)
    for _ in range(CUTS):
        cuts = layout.cuts(np.where(done > 0, found.x, 0.0))
        if not len(cuts):
            break
        ends_s = np.union1d(ends_s, cuts)
        try:
            layout, found, done = _late(jobs, window_s, ends_s, until)
        except OutOfTime:
            break
    last_s = layout.window_s.copy()
    np.maximum.at(last_s, layout.of_class[done > 0], layout.ends_s[layout.period[done > 0]])
    every_late, every_end_s = np.zeros(len(jobs), dtype=bool), window_s.copy()
    every_late[layout.rows] = (last_s > layout.window_s)[layout.class_of]
    every_end_s[layout.rows] = last_s[layout.class_of]
    prices = found.prices.reshape(-1, len(layout.ends_s)).sum(axis=1)
    return LateTurns(every_late, every_end_s, prices[len(prices) - len(jobs.quotas) :])


def _late(jobs: Collection, window_s: Floats, ends_s: Floats, until: TimeLimit) -> tuple[_Layout, _Least, Floats]:
    """(the layout, the plan in which the least part of the steps is late, (columns,): the late part)."""
    layout = _Layout.of(jobs, window_s, ends_s, jobs.usd_per_h, late=True)
    is_late = np.append(0.0, ends_s)[layout.period] >= layout.window_s[layout.of_class]
    tilt = 1 + LATER * layout.period / len(ends_s)
    found = layout.least(np.where(is_late, layout.count[layout.of_class] * layout.part * tilt, 0.0), until)
    return layout, found, np.where(is_late & (layout.part * found.x > NOTHING), layout.part * found.x, 0.0)


def horizon_s(jobs: Collection) -> float:
    """Seconds within which all jobs can be done where they cost least, even if none begins before the last deadline."""
    window_s = windows(jobs)
    last_s = float(window_s[np.isfinite(window_s)].max())
    return last_s + _all_s(jobs, jobs.steps, jobs.usd_per_h_started)


def _with_horizon(jobs: Collection) -> Floats:
    """(jobs,): the windows. Those of jobs without a deadline end at the horizon."""
    window_s = windows(jobs)
    found: Floats = np.where(np.isfinite(window_s), window_s, horizon_s(jobs))
    return found


def _periods(jobs: Collection, window_s: Floats) -> Floats:
    """(periods,): when each period ends: at every finite window's end, or at as many as there may be periods."""
    ends_s: Floats = np.unique(window_s[np.isfinite(window_s)])
    apart = np.append(np.diff(ends_s) > CLOSE * ends_s[1:], True)
    ends_s = ends_s[apart]
    return _some(ends_s, _most_periods(jobs))


def _most_periods(jobs: Collection) -> int:
    return max(min(2 * MOST_COLUMNS // int(np.count_nonzero(jobs.rate)), 2 * MOST_ROWS // len(jobs)), FEWEST)


def _some(ends_s: Floats, most: int) -> Floats:
    """At most so many of these, with the first and the last."""
    if len(ends_s) <= most:
        return ends_s
    found: Floats = ends_s[np.unique(np.linspace(0, len(ends_s) - 1, most).round().astype(int))]
    return found


def _all_s(jobs: Collection, steps: Floats, price: Floats) -> float:
    """Seconds within which so many `steps` (jobs,) can be done, each where it costs least, at the `price` (jobs, ways)
    of time."""
    took_s = cheapest_s(jobs, steps, price)
    longest_s = float(took_s.max(initial=0.0))
    for ways, each, most in jobs.limits:
        longest_s = max(longest_s, float(((took_s[:, ways] * each).sum(axis=1) * jobs.gpus).sum()) / max(most, 1e-9))
    return longest_s * (1 + CLOSE) + CLOSE


@dataclass(frozen=True, slots=True)
class _Least:
    """The least cost: the parts `x` (columns,), the `bound`, and the `prices` (limits x periods,)."""

    x: Floats
    bound: float
    prices: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The columns: class `of_class`, `way` and `period` of each, the `part` of a job's steps that it does if it spends
    all of the period there, and what that costs (`cost`, for all jobs of the class).

    `rows`: the jobs that are planned, of the classes `class_of`, each with `count` equal jobs. `given`: the windows and
    the dollars per hour of all jobs. `rough`: some deadlines are within a period.
    """

    jobs: Collection
    given: tuple[Floats, Floats]
    rows: Integers
    class_of: Integers
    count: Floats
    window_s: Floats
    ends_s: Floats
    of_class: Integers
    way: Integers
    period: Integers
    part: Floats
    cost: Floats
    earliness: Floats
    rough: bool

    @classmethod
    def of(
        cls,
        jobs: Collection,
        window_s: Floats,
        ends_s: Floats,
        usd_per_h: Floats,
        *,
        whole: bool = False,
        late: bool = False,
    ) -> _Layout:
        """The layout for the jobs with a finite window. `whole`: a job has all of the period in which its deadline is;
        `late`: it may also run after that period."""
        rows = np.flatnonzero(np.isfinite(window_s) & (jobs.steps > 0))
        rate, gpus, steps, due_s = jobs.rate[rows], jobs.gpus[rows], jobs.steps[rows], window_s[rows]
        first, class_of = alike(rate, gpus, steps, due_s, usd_per_h[rows])
        rate, steps, due_s, count = rate[first], steps[first], due_s[first], np.bincount(class_of).astype(float)
        begins_s = np.append(0.0, ends_s[:-1])
        length_s = np.clip(np.minimum(ends_s, due_s[:, None]) - begins_s, 0.0, None)
        starts = (begins_s < due_s[:, None]) if whole else np.zeros(length_s.shape, dtype=bool)
        starts |= (begins_s >= due_s[:, None]) if late else False
        length_s = np.where(starts, ends_s - begins_s, length_s)
        of, way = np.nonzero(rate > 0)
        periods = len(ends_s)
        of, way = np.repeat(of, periods), np.repeat(way, periods)
        period = np.tile(np.arange(periods), len(of) // periods)
        kept = length_s[of, period] > 0
        of, way, period = of[kept], way[kept], period[kept]
        took_s = length_s[of, period]
        cost = count[of] * usd_per_h[rows][first][of, way] * took_s / 3600
        return cls(
            jobs,
            (window_s, usd_per_h),
            rows,
            class_of,
            count,
            due_s,
            ends_s,
            of,
            way,
            period,
            rate[of, way] * took_s / steps[of],
            cost,
            count[of] * took_s / due_s[of] * (period + 1),
            not bool(np.isin(due_s, ends_s).all()),
        )

    def least(self, cost: Floats, until: TimeLimit) -> _Least:
        """The least `cost` (columns,) with which all steps are done."""
        scale = float(np.abs(cost).max(initial=0.0)) or 1.0
        every = np.arange(len(cost))
        found = self.solved(every, self.of_class, np.ones(len(self.count)), cost / scale, until)
        times, limits = len(self.count) * len(self.ends_s), self._limits(every)
        prices = np.maximum(-found.dual[times : times + len(limits[3])], 0.0) * scale
        weights = np.maximum(found.dual[times + len(limits[3]) :], 0.0) * scale
        row, column, value, most = limits
        x = self._within_limits(found.x)
        if (summed(self.of_class, self.part * x, len(self.count)) < 1 - TOLERANCE).any():
            raise Uncertified("a job is slower than required")
        gains = weights[self.of_class] * self.part - cost - summed(column, prices[row] * value, len(cost))
        worth = np.zeros(times)
        np.maximum.at(worth, self.of_class * len(self.ends_s) + self.period, gains)
        paid = float(prices[prices > 0] @ most[prices > 0])
        return _Least(x, float(weights.sum()) - paid - float(worth.sum()), prices)

    def _within_limits(self, x: Floats) -> Floats:
        """The parts `x` (columns,), a little smaller where the solver's rounding errors exceed a job's time or a
        limit."""
        x, periods = np.maximum(x, 0.0), len(self.ends_s)
        cell = self.of_class * periods + self.period
        x = x / np.maximum(summed(cell, x, len(self.count) * periods), 1.0)[cell]
        row, column, value, most = self._limits(np.arange(len(x)))
        used = summed(row, value * x[column], len(most))
        over = used > most
        part = np.where(over, np.maximum(most, 0.0) / np.where(over, used, 1.0), 1.0)
        least = np.ones(len(x))
        np.minimum.at(least, column, part[row])
        scaled: Floats = x * least
        return scaled

    def within(self, cost: Floats, until: TimeLimit) -> _Least:
        """The same; if the limits contradict each other only because there are too few periods, raises OutOfTime."""
        try:
            return self.least(cost, until)
        except Contradiction as error:
            if not self.rough:
                raise
            outer = self.outer()
            outer.least(outer.cost, until)
            raise OutOfTime(until) from error

    def outer(self) -> _Layout:
        """The layout in which jobs have the whole period in which their deadline is: its bounds are true, too."""
        window_s, usd_per_h = self.given
        return _Layout.of(self.jobs, window_s, self.ends_s, usd_per_h, whole=True)

    def early(self, x: Floats, until: TimeLimit) -> Floats:
        """(columns,): as much work of each job in each way as by `x`, but as early as possible."""
        ways = self.jobs.rate.shape[1]
        key = self.of_class * ways + self.way
        work = summed(key, self.part * x, len(self.count) * ways)
        columns = np.flatnonzero(work[key] > NOTHING)
        used, row = np.unique(key[columns], return_inverse=True)
        found = np.zeros(len(x))
        cost = self.earliness[columns]
        scale = float(cost.max(initial=0.0)) or 1.0
        try:
            found[columns] = self.solved(columns, row, work[used], cost / scale, until).x
        except (Contradiction, OutOfTime):
            return x
        return self._within_limits(found)

    def cuts(self, x: Floats) -> Floats:
        """When the work `x` (columns,) could end in its periods if it came first: each job's alone, and of each limit
        one job's after the other, those with the nearest deadlines first. Only times within a period."""
        periods, classes = len(self.ends_s), len(self.count)
        busy = summed(self.of_class * periods + self.period, x, classes * periods).reshape(classes, periods)
        parts, order = [busy], np.argsort(self.window_s, kind="stable")
        row, column, units, most = self._limits(np.arange(len(x)))
        for limit in range(len(most) // periods):
            its = (row // periods == limit) & (most[row] > 0)
            of = column[its]
            cell = self.of_class[of] * periods + self.period[of]
            used = summed(cell, units[its] * x[of] / most[row[its]], classes * periods).reshape(classes, periods)
            parts.append(np.where(used > 0, used[order].cumsum(axis=0)[np.argsort(order)], 0.0))
        part = np.vstack(parts)
        begins_s = np.append(0.0, self.ends_s[:-1])
        found: Floats = np.unique((begins_s + part * (self.ends_s - begins_s))[(part > NOTHING) & (part < 1 - NOTHING)])
        found = found[np.diff(found, prepend=0.0) > CLOSE * found]
        return _some(found, min(MOST_CUTS, _most_periods(self.jobs)))

    def turns(self, x: Floats, value: float, bound: float) -> Turns:
        """The plan of all jobs."""
        shape = self.jobs.rate.shape
        most = np.zeros(len(self.count))
        np.maximum.at(most, self.of_class, x)
        at_first = (self.period == 0) & (x > NOTHING * most[self.of_class])
        now, work = np.zeros((len(self.count), shape[1])), np.zeros((len(self.count), shape[1]))
        now[self.of_class[at_first], self.way[at_first]] = x[at_first]
        np.add.at(work, (self.of_class, self.way), self.part * x)
        work = np.where(work > NOTHING, work, 0.0)
        last_s = np.zeros(len(self.count))
        some = self.part * x > NOTHING
        np.maximum.at(
            last_s, self.of_class[some], np.minimum(self.ends_s[self.period], self.window_s[self.of_class])[some]
        )
        every_now, every_work, every_end_s = np.zeros(shape), np.zeros(shape), np.zeros(shape[0])
        every_now[self.rows], every_end_s[self.rows] = now[self.class_of], last_s[self.class_of]
        every_work[self.rows] = (work / work.sum(axis=1, keepdims=True))[self.class_of]
        return Turns(every_now, every_work, every_end_s, float(self.ends_s[0]), value, bound)

    def solved(
        self,
        columns: Integers,
        row: Integers,
        asked: Floats,
        cost: Floats,
        until: TimeLimit,
        unlimited: int | None = None,
    ) -> Solution:
        """The least `cost` of some of the columns, with at least `asked` (rows,) of the work: each column counts in its
        `row`. With the limit `unlimited`, one more column is how much of it is used at most, and costs that much."""
        periods = len(self.ends_s)
        times, number = len(self.count) * periods, np.arange(len(columns))
        at, column, value, most = self._limits(columns)
        if unlimited is not None:
            its = unlimited * periods + np.arange(periods)
            most[its], cost = 0.0, np.append(cost, 1.0)
            at, value = np.concatenate([at, its]), np.concatenate([value, -np.ones(periods)])
            column = np.concatenate([column, np.full(periods, len(columns))])
        rows = times + len(most)
        found = solve(
            Linear(
                cost,
                np.zeros(len(cost)),
                np.full(len(cost), np.inf),
                np.concatenate([np.full(rows, -np.inf), asked]),
                np.concatenate([np.ones(times), most, np.full(len(asked), np.inf)]),
                np.concatenate([self.of_class[columns] * periods + self.period[columns], times + at, rows + row]),
                np.concatenate([number, column, number]),
                np.concatenate([np.ones(len(columns)), value, self.part[columns]]),
            ),
            simplex=True,
            until=until,
        )
        if not found.in_time:
            raise OutOfTime(until)
        return found

    def _limits(self, columns: Integers) -> tuple[Integers, Integers, Floats, Floats]:
        """(row, column, units) of each cell of the limits of each period, and the most (limits x periods,)."""
        rows, cells, units, most = [], [], [], []
        periods, ways = len(self.ends_s), self.jobs.rate.shape[1]
        gpus = self.jobs.gpus[self.rows]
        takes = np.zeros(len(self.count))
        takes[self.class_of] = gpus
        for number, (inside, each, limit) in enumerate(self.jobs.limits):
            of_way = np.zeros(ways)
            of_way[inside] = each
            amount = of_way[self.way[columns]] * (takes * self.count)[self.of_class[columns]]
            at = np.flatnonzero(amount > 0)
            rows.append(number * periods + self.period[columns[at]])
            cells.append(at)
            units.append(amount[at])
            most.append(np.full(periods, limit))
        nothing = np.zeros(0)
        return (
            np.concatenate([nothing.astype(np.int64), *rows]),
            np.concatenate([nothing.astype(np.int64), *cells]),
            np.concatenate([nothing, *units]),
            np.concatenate([nothing, *most]),
        )
