"""Certificates: a bound on any answer, computed from prices alone (weak duality), regardless of the source of the
prices.

Given any prices mu >= 0 of the limits and weights lambda >= 0 of the conditions, the value of a problem's limits bounds
the value that its jobs can reach. The solver need not be trusted: wrong prices give a poor bound, but never a false
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.policy.groups.columns import Columns, conditions
from orchestrator.policy.groups.curves import Curves
from orchestrator.policy.groups.needs import Needs
from orchestrator.policy.groups.problem import Floats, summed

STEPS = 60


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Dual values, all >= 0: `prices` (limits,) of the limits, `weights` (conditions,) of the conditions, and `worth`
    (classes,) of a job's time."""

    prices: Floats
    weights: Floats
    worth: Floats


def bound_of_total(columns: Columns, curves: Curves, asked: Floats, cost: Floats, multipliers: Multipliers) -> float:
    """A lower bound on cost (columns,) @ x for all x that keep the limits and meet `asked` (conditions,)."""
    gains = _gains(columns, curves, multipliers) - cost
    spent = float(multipliers.prices @ columns.problem.most) + _worth(columns, gains, multipliers.worth)
    return float(multipliers.weights @ asked) - spent


def bound_of_ratio(columns: Columns, curves: Curves, needs: Needs, multipliers: Multipliers, start: float) -> float:
    """A bound on z of `needs`: no larger z is possible (if the needs rise with z), or no smaller one. `start` is a
    known bound.

    At any possible z, the weighted needs are at most `most` (in the code below). Newton's method on that convex
    function starts at the known bound and approaches the root from the safe side.
    """
    gains = _gains(columns, curves, multipliers)
    most = float(multipliers.prices @ columns.problem.most) + _worth(columns, gains, multipliers.worth)
    z = start
    for _ in range(STEPS):
        asked = needs.at(z)
        over = float(multipliers.weights @ curves.asked(asked)) - most
        slope = float(multipliers.weights @ curves.slope(asked, needs.slope(z)))
        if not over > 0 or slope == 0 or not np.isfinite(over):
            return z
        following = z - over / slope
        if abs(following - z) <= 1e-13 * abs(z):
            return z
        z = following
    return z


def _gains(columns: Columns, curves: Curves, multipliers: Multipliers) -> Floats:
    """(columns,): what a unit of each column is worth, less the price of the limits that it uses."""
    cells, classes = columns.rows, len(columns.problem.rate)
    count = columns.singles + columns.pairs
    limit = cells.row >= classes
    prices = multipliers.prices[cells.row[limit] - classes]
    paid = summed(cells.column[limit], prices * cells.value[limit], count)
    left = conditions(columns, curves)
    worth = summed(left.column, multipliers.weights[left.row] * left.value, count)
    return worth - paid


def _worth(columns: Columns, gains: Floats, hint: Floats) -> float:
    """The most that `gains` (columns,) can add up to if each job spends at most all of its time. `hint` (classes,): the
    worth of a job's time by the solver; used with pairs."""
    pairs, count = columns.problem.pairs, columns.problem.count
    worth = np.zeros(len(count)) if pairs is None else np.maximum(hint, 0.0)
    np.maximum.at(worth, columns.of, gains[: columns.singles])
    if pairs is not None:
        missing = gains[columns.singles :] - worth[pairs.first] - worth[pairs.second]
        extra = np.zeros(len(count))
        np.maximum.at(extra, pairs.first, missing)
        worth = worth + extra
    return float(count @ worth)
