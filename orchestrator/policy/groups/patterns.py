"""What one job does at given prices: the mix of at most two ways that is cheapest for the rate that it needs.

With a price on every limit, jobs no longer depend on each other: each solves

    min  sum_k price_k x_k    with  sum_k rate_k x_k >= need,  sum_k x_k <= 1,  x >= 0

whose optimum lies on the lower hull of the points (rate, price), with idling at (0, 0). All jobs are solved at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from orchestrator.policy.groups.linear import Contradiction
from orchestrator.policy.groups.problem import Floats, Integers, Problem, spread, summed

IDLE = -1


@dataclass(frozen=True, slots=True)
class Patterns:
    """Mixes, one per row: the `job`, and up to two ways (`first`, `second`) with the time in each. The way IDLE counts
    for nothing.

    `slope` (rows,): what one more step/s would cost, at the prices for which the mix was found.
    """

    job: Integers
    first: Integers
    first_time: Floats
    second: Integers
    second_time: Floats
    slope: Floats

    def __len__(self) -> int:
        return len(self.job)

    def of(self, rows: Integers) -> Patterns:
        """The patterns in these rows."""
        return Patterns(
            self.job[rows],
            self.first[rows],
            self.first_time[rows],
            self.second[rows],
            self.second_time[rows],
            self.slope[rows],
        )

    def renamed(self, jobs: Integers) -> Patterns:
        """The same mixes for other jobs: job i becomes `jobs`[i]."""
        return replace(self, job=jobs[self.job])

    def total(self, table: Floats) -> Floats:
        """(rows,): the sum of `table` (jobs, ways) x time over the ways of each mix."""
        found: Floats = np.zeros(len(self))
        for way, time in ((self.first, self.first_time), (self.second, self.second_time)):
            some = np.flatnonzero(way != IDLE)
            found[some] += table[self.job[some], way[some]] * time[some]
        return found

    def shares(self, shape: tuple[int, ...], part: Floats) -> Floats:
        """`shape` (jobs, ways): each job's time in each way, if it follows each of its mixes for `part` (rows,) of the
        time."""
        found = np.zeros(shape)
        for way, time in ((self.first, self.first_time), (self.second, self.second_time)):
            some = np.flatnonzero(way != IDLE)
            np.add.at(found, (self.job[some], way[some]), part[some] * time[some])
        return found


def joined(several: list[Patterns], ways: int) -> Patterns:
    """The patterns of all lists, each once, in a fixed order."""
    columns = [
        np.concatenate([getattr(each, name) for each in several])
        for name in ("job", "first", "first_time", "second", "second_time", "slope")
    ]
    found = Patterns(*columns)
    _, rows = np.unique(_keys(found, ways), return_index=True)
    return found.of(rows)


def among(some: Patterns, several: Patterns, ways: int) -> Integers:
    """(some,): the row of each pattern in `several`, a list that `joined` made of these and other patterns."""
    found: Integers = np.searchsorted(_keys(several, ways), _keys(some, ways))
    return found


def _keys(patterns: Patterns, ways: int) -> Integers:
    """(rows,): a number that identifies each job and pair of ways."""
    return (patterns.job * (ways + 1) + patterns.first + 1) * (ways + 1) + patterns.second + 1


def priced(problem: Problem, value: Floats, prices: Floats) -> Floats:
    """(classes, ways): `value` plus the price of the limits that are used."""
    found, base = value.copy(), 0
    for limits in problem.limits:
        of = np.append(prices[base : base + len(limits.most)], 0.0)
        found += of[limits.at] * limits.amount
        base += len(limits.most)
    return found


def cheapest(rate: Floats, price: Floats, need: Floats) -> Patterns:
    """The cheapest mix of each job. `rate` and `price` are (jobs, ways); `need` (jobs,) is in steps/s, at most the
    job's fastest rate."""
    price = np.where(rate > 0, price, np.inf)
    every = np.arange(len(rate))
    first = price.argmin(axis=1)
    here = np.where(price[every, first] < 0, price[every, first], 0.0)
    first = np.where(here < 0, first, IDLE)
    speed = np.where(first == IDLE, 0.0, rate[every, first])
    second, slope, more = np.full(len(rate), IDLE), np.zeros(len(rate)), np.flatnonzero(speed < need)
    while len(more):
        faster = rate[more] - speed[more, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = np.where(faster > 1e-12 * rate[more], (price[more] - here[more, None]) / faster, np.inf)
        following = steep.argmin(axis=1)
        found = steep[np.arange(len(more)), following]
        stuck = ~np.isfinite(found)
        slope[more] = np.where(stuck, slope[more], found)
        enough = (rate[more, following] >= need[more]) & ~stuck
        second[more[enough]] = following[enough]
        go = ~enough & ~stuck
        rows, to = more[go], following[go]
        first[rows], speed[rows], here[rows] = to, rate[rows, to], price[rows, to]
        more = rows
    two = second != IDLE
    fast = np.where(two, rate[every, second], 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        second_time = np.where(two, np.clip((need - speed) / np.where(two, fast - speed, 1.0), 0, 1), 0.0)
    first_time = np.where(first == IDLE, 0.0, 1 - second_time)
    return Patterns(every, first, first_time, second, second_time, slope)


def usage(problem: Problem, patterns: Patterns) -> tuple[Integers, Integers, Floats]:
    """Cells (row of `patterns`, limit, amount): how much each mix uses of each limit. Each job must have its own
    class."""
    rows, at, amounts, base = [], [], [], 0
    for limits in problem.limits:
        where, how_much = (np.broadcast_to(table, problem.rate.shape) for table in (limits.at, limits.amount))
        for way, time in ((patterns.first, patterns.first_time), (patterns.second, patterns.second_time)):
            some = np.flatnonzero((way != IDLE) & (time > 0))
            cell = (patterns.job[some], way[some])
            limit = where[cell]
            inside = limit >= 0
            rows.append(some[inside])
            at.append(limit[inside] + base)
            amounts.append((how_much[cell] * time[some])[inside])
        base += len(limits.most)
    if not rows:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    key = np.concatenate(rows) * base + np.concatenate(at)  # both ways of a mix may use the same limit
    cells, inverse = np.unique(key, return_inverse=True)
    return cells // base, cells % base, summed(inverse, np.concatenate(amounts), len(cells))


def some_jobs(problem: Problem, jobs: Integers, most: Floats) -> Problem:
    """The problem of a few jobs, with `most` (limits,) of each limit. Each job has its own class."""
    limits, base = [], 0
    for each in problem.limits:
        limits.append(each.among(jobs, most[base : base + len(each.most)]))
        base += len(each.most)
    return Problem(problem.rate[jobs], problem.cost[jobs], np.arange(len(jobs)), tuple(limits))


def one_class_each(problem: Problem) -> Problem:
    """The same problem with a class for each job."""
    return some_jobs(problem, problem.class_of, problem.most)


def without_closed_ways(problem: Problem) -> Problem:
    """The same problem without the ways that need a used-up limit. Each job must have its own class.

    Raises Contradiction if a job is left without any way.
    """
    rate = problem.rate.copy()
    for limits in problem.limits:
        at, amount = spread(problem, limits)
        rate[(at >= 0) & (amount > 0) & (np.append(limits.most, np.inf)[at] <= 0)] = 0.0
    stuck = np.flatnonzero((problem.rate > 0).any(axis=1) & ~(rate > 0).any(axis=1))
    if len(stuck):
        raise Contradiction(
            f"job {stuck[0]} cannot run: every way in which it could run has a limit that is used up",
            hint="leave the job out, or raise a limit",
        )
    return replace(problem, rate=rate)
