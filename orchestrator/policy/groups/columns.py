"""The columns and shared rows of a problem's linear program. There is one column for each way in which a class can run,
and one for each pair."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from orchestrator.policy.groups.curves import Curves
from orchestrator.policy.groups.problem import Floats, Integers, Problem, of_pairs, spread


@dataclass(frozen=True, slots=True)
class Cells:
    """The nonzero cells of a sparse matrix."""

    row: Integers
    column: Integers
    value: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The layout of a linear program.

    `column` (classes, ways): the number of each column, -1 where the class cannot run; the columns of pairs follow.
    `of` and `way` give the class and the way of each column that is not a pair. The rows are first the classes, then
    the limits of the problem.
    """

    problem: Problem
    column: Integers
    of: Integers
    way: Integers
    rows: Cells

    @property
    def singles(self) -> int:
        """The number of columns that are not pairs."""
        return len(self.of)

    @property
    def pairs(self) -> int:
        """The number of columns that are pairs."""
        return 0 if self.problem.pairs is None else len(self.problem.pairs.way)

    def flat(self, table: Floats, of_pairs: Floats | None = None) -> Floats:
        """(columns,): a (classes, ways) table, and the values of pairs (0 if not given), in the order of columns."""
        pairs = np.zeros(self.pairs) if of_pairs is None else of_pairs
        return np.concatenate([np.asarray(table, dtype=float)[self.of, self.way], pairs])

    def unflat(self, x: Floats) -> tuple[Floats, Floats]:
        """The inverse of `flat`."""
        table = np.zeros(self.problem.rate.shape)
        table[self.of, self.way] = x[: self.singles]
        return table, x[self.singles : self.singles + self.pairs]


@lru_cache(maxsize=1)  # called repeatedly for the same program
def conditions(columns: Columns, curves: Curves) -> Cells:
    """The left sides of the conditions of `curves`: row i is condition i."""
    problem = columns.problem
    rate = problem.rate[curves.of]
    row, way = np.nonzero(rate > curves.above[:, None])
    column = columns.column[curves.of[row], way]
    cells = [(row, column, rate[row, way] - curves.above[row])]
    pairs = problem.pairs
    if pairs is not None:
        assert not curves.above.any(), "jobs of a class that shares machines must need the same"
        at = np.full(len(problem.rate), -1)
        at[curves.of] = np.arange(len(curves.of))
        number = columns.singles + np.arange(columns.pairs)
        for who, how_fast in ((pairs.first, pairs.rate_first), (pairs.second, pairs.rate_second)):
            asks = at[who] >= 0
            cells.append((at[who[asks]], number[asks], how_fast[asks]))
    return _joined(cells, merge=pairs is not None)


def columns(problem: Problem) -> Columns:
    """The columns and shared rows of `problem`."""
    of, way = np.nonzero(problem.rate > 0)
    column = np.full(problem.rate.shape, -1)
    column[of, way] = np.arange(len(of))
    cells: list[Any] = [(of, np.arange(len(of)), np.ones(len(of)))]
    pairs = problem.pairs
    if pairs is not None:
        number = len(of) + np.arange(len(pairs.way))
        cells += [(who, number, np.ones(len(number))) for who in (pairs.first, pairs.second)]
    base = len(problem.rate)
    for limits in problem.limits:
        at, amount = (table[of, way] for table in spread(problem, limits))
        inside = np.flatnonzero((at >= 0) & (amount != 0))
        cells.append((base + at[inside], inside, amount[inside]))
        if pairs is not None:
            at, amount = of_pairs(problem, limits)
            inside = np.flatnonzero((at >= 0) & (amount != 0))
            cells.append((base + at[inside], len(of) + inside, amount[inside]))
        base += len(limits.most)
    return Columns(problem, column, of, way, _joined(cells, merge=pairs is not None))


def _joined(cells: list[Any], *, merge: bool) -> Cells:
    """The cells in one. `merge`: add up cells at the same place, because a pair of two jobs of one class counts twice
    in it."""
    row, column, value = (np.concatenate(each) for each in zip(*cells, strict=True))
    if merge:
        keys, inverse = np.unique(np.column_stack([row, column]), axis=0, return_inverse=True)
        row, column, value = keys[:, 0], keys[:, 1], np.bincount(inverse, value)
    return Cells(row.astype(np.int64), column.astype(np.int64), value.astype(float))
