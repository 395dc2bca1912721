"""How much of its time each job follows each of its candidate mixes, within given limits. This is a small linear
program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.policy.groups.linear import Flags, Linear, basis_of, in_basis, solve
from orchestrator.policy.groups.patterns import Patterns, among, usage
from orchestrator.policy.groups.problem import Floats, Integers, Problem, summed
from orchestrator.policy.groups.time_limit import TimeLimit

LEAST_PART = 1e-6
"""Each limit's row is divided by what is left of the limit, but by at least this part of the whole limit, because the
solver refuses cells that are too large."""


class Work(Protocol):
    """What is optimized; see priced.py."""

    problem: Problem

    def worth(self, candidates: Patterns) -> Floats:
        """(candidates,): what each costs."""
        ...

    def exceeding(self, most: Floats) -> tuple[Integers, Integers, Floats, Floats]:
        """The columns by which limits can be exceeded: their cells as (limit, column, amount), and the cost of each
        column."""
        ...


@dataclass(frozen=True, slots=True)
class Basis:
    """What was in the solver's basis at the end: which candidates, rows of jobs, rows of limits, and columns by which
    limits can be exceeded. If a job has only one candidate, that candidate counts as in the basis."""

    candidates: Flags
    jobs: Flags
    limits: Flags
    exceeding: Flags


@dataclass(frozen=True, slots=True)
class Mixed:
    """A choice: the `part` (candidates,) of its job's time for each candidate, what is `used` (limits,), and the
    `prices` (limits,) at which the choice is optimal."""

    candidates: Patterns
    part: Floats
    used: Floats
    prices: Floats
    basis: Basis | None = None


def choose(work: Work, candidates: Patterns, most: Floats, until: TimeLimit, before: Mixed | None = None) -> Mixed:
    """The best parts within `most` (limits,). A job with a single candidate follows it.

    `before`: a choice among fewer candidates, within the same limits or smaller ones, from which the solver continues.
    """
    if not len(most):
        return _unlimited(work, candidates)
    jobs, position = np.unique(candidates.job, return_inverse=True)
    row, limit, amount = usage(work.problem, candidates)
    alone = np.bincount(position)[position] == 1
    fixed = np.bincount(limit[alone[row]], amount[alone[row]], minlength=len(most))
    several = np.flatnonzero(~alone)
    column = np.full(len(candidates), -1)
    column[several] = np.arange(len(several))
    shared, who = np.unique(position[several], return_inverse=True)
    there = ~alone[row]
    over_limit, over_column, over_amount, over_cost = work.exceeding(most)
    cells_row = [who, len(shared) + limit[there], len(shared) + over_limit]
    cells_column = [column[several], column[row[there]], len(several) + over_column]
    cells = [np.ones(len(several)), amount[there], -over_amount]
    cost = np.concatenate([work.worth(candidates.of(several)), over_cost])
    scale = float(np.abs(cost).max(initial=0.0)) or 1.0
    sizes = np.maximum(most, LEAST_PART * work.problem.most)
    sizes = np.where(sizes > 0, sizes, 1.0)
    row_size = np.concatenate([np.ones(len(shared)), sizes])
    rows = np.concatenate(cells_row)
    linear = Linear(
        cost / scale,
        np.zeros(len(cost)),
        np.full(len(cost), np.inf),
        np.concatenate([np.ones(len(shared)), np.full(len(most), -np.inf)]),
        np.concatenate([np.ones(len(shared)), (most - fixed) / sizes]),
        rows,
        np.concatenate(cells_column),
        np.concatenate(cells) / row_size[rows],
    )
    start = None
    if before is not None and before.basis is not None:
        was = before.basis
        inside = np.zeros(len(candidates), dtype=bool)
        inside[among(before.candidates, candidates, work.problem.rate.shape[1])] = was.candidates
        start = basis_of(
            linear,
            np.concatenate([inside[several], was.exceeding]),
            np.concatenate([was.jobs[jobs[shared]], was.limits]),
        )
    found = solve(linear, start=start, feasible=True, simplex=True, until=until)
    part = np.ones(len(candidates))
    part[several] = np.clip(found.x[: len(several)], 0, 1)
    prices = np.maximum(-found.dual[len(shared) :], 0.0) * scale / sizes
    used = summed(limit, amount * part[row], len(most))
    columns_inside, rows_inside = in_basis(found)
    inside = np.ones(len(candidates), dtype=bool)
    inside[several] = columns_inside[: len(several)]
    jobs_inside = np.zeros(work.problem.jobs, dtype=bool)
    jobs_inside[jobs[shared]] = rows_inside[: len(shared)]
    basis = Basis(inside, jobs_inside, rows_inside[len(shared) :], columns_inside[len(several) :])
    return Mixed(candidates, part, used, prices, basis)


def _unlimited(work: Work, candidates: Patterns) -> Mixed:
    """The choice without limits: each job follows the candidate that costs least."""
    order = np.lexsort((work.worth(candidates), candidates.job))
    _, first = np.unique(candidates.job[order], return_index=True)
    part = np.zeros(len(candidates))
    part[order[first]] = 1.0
    return Mixed(candidates, part, np.zeros(0), np.zeros(0))
