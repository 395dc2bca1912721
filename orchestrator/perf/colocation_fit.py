"""Fits the model of jobs that share GPUs to a table: the sizes of its effects, and how wide its intervals are. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from orchestrator.perf.colocation import ColocationModel, untaught
from orchestrator.perf.descent import Steps, descend
from orchestrator.perf.pairings import Effects, PairCell

# Before any table, the logarithm of each effect is assumed known to +-0.5, as in `ratios`.
_SPREAD_LOG_SD = 0.5
_STEPS = Steps(first=0.7, least=0.1, gain=1e-6)
_MOST_CELLS = 300
"""The effects are fitted to at most this many cells, taken evenly: more cells hardly change them and take cubic
time."""


def fit_colocation(table: Sequence[PairCell], effects: Effects | None = None) -> ColocationModel:
    """Fit the effects that make the cells most likely (times their prior), and the shared part given the cells.

    Deterministic, whatever the order of cells. If `effects` are given, they are used as they are. Raises ValueError
    without cells.
    """
    cells = sorted(table, key=repr)
    if not cells:
        raise ValueError("the table has no cells")
    if effects is None:
        effects = _descended(cells[:: -(-len(cells) // _MOST_CELLS)])
    return untaught(effects).learn(cells)


def calibrated_colocation(model: ColocationModel, table: Sequence[PairCell]) -> ColocationModel:
    """The model, fitted to this table, with a factor on every interval: with it, at least nine of ten rates of pairs
    with a left-out family lie within their interval. Raises ValueError without two families."""
    cells = sorted(table, key=repr)
    families = sorted({cell.of.family for cell in cells})
    if len(families) < 2:
        raise ValueError("calibration needs at least two families")
    off = []
    for family in families:
        mine = [cell for cell in cells if family in (cell.of.family, cell.of.other_family)]
        others = [cell for cell in cells if family not in (cell.of.family, cell.of.other_family)]
        posterior = replace(untaught(model.effects), families=len(families) - 1).posterior(
            [cell.of for cell in mine], others
        )
        off += [abs(cell.log_rate - posterior.mean[i]) / posterior.spread(i) for i, cell in enumerate(mine)]
    return replace(model, calibration=max(float(np.quantile(off, 0.9)), 1.0))


def _descended(cells: Sequence[PairCell]) -> Effects:
    """The effects that make the cells most likely, times their prior."""
    prior = Effects()
    names = [field.name for field in fields(Effects)]

    def loss(tried: Effects) -> float:
        unlikely = sum((math.log(getattr(tried, name) / getattr(prior, name)) / _SPREAD_LOG_SD) ** 2 for name in names)
        return untaught(tried).surprise(cells) + unlikely / 2

    return descend(loss, prior, names, _STEPS)
