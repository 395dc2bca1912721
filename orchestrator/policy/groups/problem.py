"""The problem that is solved: classes of equal jobs, the ways in which each can run, and the limits that they share.

A class has jobs that are interchangeable: with the same rates, costs and limits (but not necessarily the same work or
deadline). The variables are the time that a class spends in each way, so the size of a program does not grow with the
number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one kind (capacities, quotas, budgets). For each limit, the sum of amount x time is at most `most`.

    `at` broadcasts to (classes, ways): the limit that counts the time of a class in a way, -1 for none. `amount`
    likewise: GPUs, machines, or USD per hour. `of_pairs` (pairs,): the amounts of pairs, if they are not those of their
    first class alone.
    """

    names: tuple[str, ...]
    most: Floats
    at: Integers
    amount: Floats
    of_pairs: Floats | None = None

    def among(self, classes: Integers, most: Floats) -> Limits:
        """The same limits for these classes, in this order, with `most` of each."""
        at = self.at[classes] if len(self.at) > 1 else self.at
        return Limits(self.names, most, at, self.amount[classes] if len(self.amount) > 1 else self.amount)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Space sharing: a job of class `first` and one of class `second` together in way `way`, on the machines of one of
    them.

    All arrays have shape (pairs,). Rates are in steps/s, for each of the two jobs while they share. The pair uses and
    costs as much as a job of `first` alone.
    """

    first: Integers
    second: Integers
    way: Integers
    rate_first: Floats
    rate_second: Floats


@dataclass(frozen=True, slots=True)
class Problem:
    """`rate` (classes, ways): steps/s of one job, 0 where it cannot run; `cost` (classes, ways): USD per hour;
    `class_of` (jobs,): the class of each job."""

    rate: Floats
    cost: Floats
    class_of: Integers
    limits: tuple[Limits, ...]
    pairs: Pairs | None = None
    copies: Floats | None = None
    """(jobs,): how many equal jobs, with equal needs, each row stands for; None: one."""

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return len(self.class_of)

    @property
    def count(self) -> Floats:
        """(classes,): how many jobs are in each class."""
        return np.bincount(self.class_of, self.copies, minlength=len(self.rate)).astype(float)

    @property
    def most(self) -> Floats:
        """(limits,): how much there is of each limit, in the order of `names`."""
        return np.concatenate([np.zeros(0), *(each.most for each in self.limits)])

    @property
    def names(self) -> tuple[str, ...]:
        """(limits,): the names of all limits, one kind after the other."""
        return tuple(name for each in self.limits for name in each.names)

    def and_limits(self, more: Limits) -> Problem:
        """The same with more limits."""
        return replace(self, limits=(*self.limits, more))

    def used(self, times: Floats, together: Floats) -> Floats:
        """(limits,): how much of each is used by `times` (classes, ways) and `together` (pairs,)."""
        found: list[Floats] = [np.zeros(0)]
        for limits in self.limits:
            at, amount = spread(self, limits)
            inside = at >= 0
            sums = summed(at[inside], (amount * times)[inside], len(limits.most))
            if self.pairs is not None:
                where, how_much = of_pairs(self, limits)
                inside = where >= 0
                sums = sums + summed(where[inside], (how_much * together)[inside], len(sums))
            found.append(sums)
        return np.concatenate(found)


def summed(at: Integers, values: Floats, size: int) -> Floats:
    """(size,): the sum of the `values` at each index in `at`."""
    return np.asarray(np.bincount(at, values, minlength=size), dtype=float)


def spread(problem: Problem, limits: Limits) -> tuple[Integers, Floats]:
    """(limit, amount) of each cell, both (classes, ways)."""
    return np.broadcast_to(limits.at, problem.rate.shape), np.broadcast_to(limits.amount, problem.rate.shape)


def of_pairs(problem: Problem, limits: Limits) -> tuple[Integers, Floats]:
    """(limit, amount) of each pair, both (pairs,)."""
    pairs = problem.pairs
    assert pairs is not None
    at, amount = spread(problem, limits)
    cell = (pairs.first, pairs.way)
    return at[cell], amount[cell] if limits.of_pairs is None else limits.of_pairs


def alike(*columns: NDArray[np.generic]) -> tuple[Integers, Integers]:
    """(first job of each class, class of each job): jobs with equal rows in all `columns` (each (jobs,) or (jobs, any))
    are one class. Classes are numbered in the order in which they appear."""
    table = np.ascontiguousarray(np.column_stack([np.asarray(column, dtype=float) for column in columns])) + 0.0
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), dtype=np.int64)
    rank[order] = np.arange(len(first))
    return first[order].astype(np.int64), rank[inverse]


def with_a_way_out(problem: Problem, need: Floats) -> Problem:
    """The same problem with one more way for each class, which meets `need` (classes,) and uses no limit."""
    shape, limits = problem.rate.shape, []
    none, nothing = np.full((shape[0], 1), -1), np.zeros((shape[0], 1))
    for each in problem.limits:
        at, amount = (np.broadcast_to(table, shape) for table in (each.at, each.amount))
        limits.append(Limits(each.names, each.most, np.column_stack([at, none]), np.column_stack([amount, nothing])))
    free = np.zeros((shape[0], 1))
    return replace(
        problem,
        rate=np.column_stack([problem.rate, need]),
        cost=np.column_stack([problem.cost, free]),
        limits=tuple(limits),
    )
