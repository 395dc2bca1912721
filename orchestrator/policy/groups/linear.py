"""The only module that calls the linear solver: HiGHS (Huangfu and Hall, 2018), on sparse matrices and one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.policy.groups.problem import Floats, Integers
from orchestrator.policy.groups.time_limit import TimeLimit

Flags = NDArray[np.bool_]

REDUCED = 1e-9
"""A column helps if its reduced cost is below minus this."""
PRIMAL = 4
"""HiGHS's number for the primal simplex method, which can continue from its last basis when columns are added."""
LARGE = 4_000
"""From this number of columns on, the interior-point method is faster than the simplex method."""


class Contradiction(InfeasibleError):
    """The limits cannot all be kept. Exit code 6."""


class OutOfTime(LimitError):
    """The solver has no answer within its time limit. Exit code 9."""

    def __init__(self, until: TimeLimit) -> None:
        super().__init__(
            f"no joint plan was found within {until.seconds:.3g} s", hint="plan fewer jobs together, in several groups"
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """min cost @ x where lower <= A x <= upper and floor <= x <= ceiling. The cells of A, in any order, are (cell_row,
    cell_column, cell)."""

    cost: Floats
    floor: Floats
    ceiling: Floats
    lower: Floats
    upper: Floats
    cell_row: Integers
    cell_column: Integers
    cell: Floats


@dataclass(frozen=True, slots=True)
class Solution:
    """`x` (columns,), `dual` (rows,): the change of the cost per unit of each row's limit, and `basis`, from which the
    solver can continue.

    If not `in_time`, the time limit cut the solver off: `x` keeps all limits, but a better one may exist.
    """

    x: Floats
    dual: Floats
    basis: Any
    in_time: bool = True


def solve(
    linear: Linear,
    *,
    start: Any = None,
    feasible: bool = False,
    simplex: bool = False,
    central: bool = False,
    until: TimeLimit,
) -> Solution:
    """The solution of a linear program. Raises Contradiction and OutOfTime.

    `start`: a basis to continue from; `feasible`: it keeps all limits. `simplex`: use the simplex method even if the
    program is large. `central`: of all optima, return one in their middle instead of a corner (uses the interior-point
    method).
    """
    interior = central or (len(linear.cost) >= LARGE and start is None and not simplex)
    engine = _engine(linear, "ipx" if interior else "simplex")
    if start is not None and not interior:
        engine.setBasis(start)
        if feasible:
            engine.setOptionValue("simplex_strategy", PRIMAL)
    x, dual, in_time = _run(engine, until)
    return Solution(x, dual, None if interior else engine.getBasis(), in_time)


def basis_of(linear: Linear, columns: Flags, rows: Flags) -> Any:
    """The basis that consists of these `columns` (columns,) and `rows` (rows,), together as many as there are rows.

    The other columns are at their floor. The other rows are at their lower limit, or at the upper one if that is the
    only one.
    """
    import highspy

    status, basis = highspy.HighsBasisStatus, highspy.HighsBasis()
    basis.valid = True
    basis.col_status = [status.kBasic if each else status.kLower for each in columns]
    outside = [status.kUpper if each else status.kLower for each in np.isneginf(linear.lower)]
    basis.row_status = [status.kBasic if each else other for each, other in zip(rows, outside, strict=True)]
    return basis


def in_basis(found: Solution) -> tuple[Flags, Flags]:
    """(columns,) and (rows,): which are in the basis with which the simplex method ended."""
    import highspy

    basic = highspy.HighsBasisStatus.kBasic
    columns, rows = found.basis.col_status, found.basis.row_status
    return np.array([each == basic for each in columns]), np.array([each == basic for each in rows])


def solve_by_columns(linear: Linear, first: Flags, *, each: int, until: TimeLimit) -> Solution:
    """As `solve`, for a program in which few columns matter.

    It begins with the columns in `first` (columns,). Then it repeatedly adds the columns that would help according to
    the prices, at most `each` at a time, until there are none.
    """
    inside = np.flatnonzero(first)
    order = np.argsort(linear.cell_column, kind="stable")
    row, cell = linear.cell_row[order], linear.cell[order]
    begin = np.concatenate([[0], np.cumsum(np.bincount(linear.cell_column, minlength=len(linear.cost)))])
    of = np.full(len(linear.cost), -1)
    of[inside] = np.arange(len(inside))
    there = of[linear.cell_column] >= 0
    part = Linear(
        linear.cost[inside],
        linear.floor[inside],
        linear.ceiling[inside],
        linear.lower,
        linear.upper,
        linear.cell_row[there],
        of[linear.cell_column[there]],
        linear.cell[there],
    )
    engine = _engine(part, "simplex")
    used = [inside]
    outside = ~first
    while True:
        x, dual, in_time = _run(engine, until)
        if not in_time:
            break
        reduced = linear.cost - np.bincount(linear.cell_column, dual[linear.cell_row] * linear.cell, len(linear.cost))
        helps = np.flatnonzero(outside & (reduced < -REDUCED))
        if not len(helps):
            break
        if len(helps) > each:
            helps = helps[np.argpartition(reduced[helps], each)[:each]]
        outside[helps] = False
        used.append(helps)
        size = begin[helps + 1] - begin[helps]
        starts = np.cumsum(size) - size
        at = np.repeat(begin[helps] - starts, size) + np.arange(int(size.sum()))
        engine.addCols(
            len(helps),
            linear.cost[helps],
            linear.floor[helps],
            linear.ceiling[helps],
            len(at),
            starts.astype(np.int32),
            row[at].astype(np.int32),
            cell[at],
        )
        engine.setOptionValue("simplex_strategy", PRIMAL)
    whole = linear.floor.copy()
    whole[np.concatenate(used)] = x
    return Solution(whole, dual, None, in_time)


def _engine(linear: Linear, method: str) -> Any:
    import highspy

    rows, columns = len(linear.lower), len(linear.cost)
    order = np.argsort(linear.cell_row, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(linear.cell_row, minlength=rows))[:-1]])
    engine: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("solver", method),
        ("run_crossover", "off"),
        ("ipm_optimality_tolerance", 1e-10),
    ):
        engine.setOptionValue(option, value)
    status = engine.passModel(
        columns,
        rows,
        len(linear.cell),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        linear.cost,
        linear.floor,
        linear.ceiling,
        linear.lower,
        linear.upper,
        start.astype(np.int32),
        linear.cell_column[order].astype(np.int32),
        linear.cell[order],
        np.zeros(columns, dtype=np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise AssertionError("the solver refused the program: a cell occurs twice, or is not a number")
    return engine


def _run(engine: Any, until: TimeLimit) -> tuple[Floats, Floats, bool]:
    """(x, dual, whether the solver ended in time)."""
    import highspy

    left_s = until.left_s
    if left_s <= 0:
        raise OutOfTime(until)
    before_s = engine.getRunTime()  # the solver also counts its earlier runs
    engine.setOptionValue("time_limit", before_s + left_s)
    engine.run()
    until.spend(engine.getRunTime() - before_s)
    status, found = engine.getModelStatus(), engine.getSolution()
    feasible = engine.getInfo().primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    if status == highspy.HighsModelStatus.kTimeLimit:
        if not (found.value_valid and found.dual_valid and feasible):
            raise OutOfTime(until)
        return np.asarray(found.col_value), np.asarray(found.row_dual), False
    if not found.value_valid or status == highspy.HighsModelStatus.kInfeasible:
        raise Contradiction("the limits contradict each other", hint="relax a deadline, a budget or a quota")
    return np.asarray(found.col_value), np.asarray(found.row_dual), True
