"""Ratios between GPUs at 16 bits that were published, each predicted without its model. Must not know how to print.

A job of a source was measured on several kinds of GPU. One of them is known, each in turn; the model of ratios is
fitted to all other models' jobs, spreads and calibration included, and predicts the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.perf import FITTED_NARROW, Cell, Kind, RatioModel, Row, calibrated, fit

_MEASURED_VARIANCE = 1e-4  # a rate is good to 1 %


@dataclass(frozen=True)
class Predicted:
    """A ratio of a model (`family`) between two kinds; `off` is the logarithm of predicted over true."""

    family: str
    profiled: bool
    measured: Kind
    wanted: Kind
    off: float
    inside: bool

    @property
    def error(self) -> float:
        """Relative, of the ratio."""
        return abs(math.expm1(self.off))


def left_out(rows: Sequence[Row], training: Sequence[Row], *, quick: bool = False) -> list[Predicted]:
    """Every ratio at 16 bits among `rows`, with the sort of work known and unknown; `training` are those that a fit may
    see, but for the family in question.

    With `quick` spreads and calibration are those that come with the product.
    """
    jobs: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.precision == "fp16":
            jobs[row.family][row.job].append(row)
    return [
        predicted
        for family, of in sorted(jobs.items())
        for model in [_without(family, training, quick=quick)]
        for job in of.values()
        for profiled in (True, False)
        for predicted in _ratios(model, job, profiled=profiled)
    ]


def _without(family: str, training: Sequence[Row], *, quick: bool) -> RatioModel:
    others = [row for row in training if row.family != family]
    if quick:
        return replace(fit(others, FITTED_NARROW.spreads), calibration=FITTED_NARROW.calibration)
    return calibrated(fit(others), others)


def _ratios(model: RatioModel, job: Sequence[Row], *, profiled: bool) -> list[Predicted]:
    found = []
    for known in job:
        cell = Cell(known.kind, math.log(known.steps_per_s), _MEASURED_VARIANCE)
        wanted = [row for row in job if row.kind != known.kind]
        belief = model.belief(
            [row.kind for row in wanted], [cell], precision=known.precision, sort=known.sort if profiled else None
        )
        for index, row in enumerate(wanted):
            off = float(belief.mean[index]) - math.log(row.steps_per_s)
            found.append(Predicted(known.family, profiled, known.kind, row.kind, off, abs(off) <= belief.spread(index)))
    return found
