"""Simple estimates of a job's slowdown beside another one: the mean, a half, and Gavel's method.

Gavel's estimator (Narayanan et al., OSDI 2020, section 6): a matrix of jobs by jobs for each kind of GPU is completed
by factors of rank 10 (probabilistic matrix factorization); a new job then counts as the reference job whose row is
nearest by cosine. This is an own implementation of that description.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from orchestrator.perf import Floats, PairCell, Pairing

RANK, ROUNDS = 10, 30
PENALTY = 0.03  # on the squares of the factors: the best for this table of 0.003, 0.01, 0.03, 0.1, 0.3 and 1


def slowdown(cell: PairCell) -> float:
    return float(np.exp(cell.log_rate - cell.of.log_alone))


def mean_of_table(known: Sequence[PairCell], wanted: Sequence[Pairing]) -> Floats:
    """(wanted,): the mean of all known slowdowns."""
    return np.full(len(wanted), np.mean([slowdown(cell) for cell in known]) if known else 0.5)


def half(wanted: Sequence[Pairing]) -> Floats:
    return np.full(len(wanted), 0.5)


def of_gavel(known: Sequence[PairCell], wanted: Sequence[Pairing], new: Collection[str] = ()) -> Floats:
    """(wanted,): by completed matrices, one for each kind of GPU. Each job in `new` counts as the nearest other one; a
    new job without any measurement counts as the mean."""
    names = sorted({name for of in (*(cell.of for cell in known), *wanted) for name in (of.job, of.other)})
    number = {name: index for index, name in enumerate(names)}
    found = mean_of_table(known, wanted)
    for kind in sorted({each.kind for each in wanted}, key=str):
        matrix = np.full((len(names), len(names)), np.nan)
        for cell in known:
            if cell.of.kind == kind:
                matrix[number[cell.of.job], number[cell.of.other]] = slowdown(cell)
        if np.isnan(matrix).all():
            continue
        completed = _completed(matrix)
        stands_for = {name: _nearest(name, names, matrix, completed, new) for name in names}
        for index, each in enumerate(wanted):
            if each.kind != kind:
                continue
            job, other = stands_for[each.job], stands_for[each.other]
            if job is not None and other is not None:
                at = number[job], number[other]
                found[index] = completed[at] if np.isnan(matrix[at]) else matrix[at]
    return np.clip(found, 0.05, 1.0)


def _nearest(name: str, names: list[str], matrix: Floats, completed: Floats, new: Collection[str]) -> str | None:
    if name not in new:
        return name
    row = names.index(name)
    if np.isnan(matrix[row]).all():
        return None
    lengths = np.linalg.norm(completed, axis=1)
    likeness = completed @ completed[row] / (lengths * lengths[row])
    return max((other for other in names if other not in new), key=lambda other: likeness[names.index(other)])


def _completed(matrix: Floats) -> Floats:
    """The matrix from factors, by alternating least squares over its known cells, around their mean."""
    there = ~np.isnan(matrix)
    middle = matrix[there].mean()
    value = np.where(there, matrix - middle, 0.0)
    chance = np.random.default_rng(0)
    rows, columns = (chance.normal(0, 0.1, (len(matrix), RANK)) for _ in range(2))
    for _ in range(ROUNDS):
        rows = _solved(columns, value, there)
        columns = _solved(rows, value.T, there.T)
    completed: Floats = middle + rows @ columns.T
    return completed


def _solved(factors: Floats, value: Floats, there: np.ndarray) -> Floats:
    found = np.zeros((len(value), RANK))
    for row, mine in enumerate(there):
        used = factors[mine]
        found[row] = np.linalg.solve(used.T @ used + PENALTY * np.eye(RANK), used.T @ value[row, mine])
    return found
