"""Published speed ratios between GPUs at 16 bits, each predicted with its own model left out.

A job was measured on several kinds of GPU. Each of them in turn counts as known; the ratio model, with spreads and
calibration, is fitted to the jobs of all other models and predicts the remaining kinds.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.perf import FITTED_NARROW, Cell, InstanceKind, RatioModel, Row, calibrated, fit

_MEASURED_VARIANCE = 1e-4  # rates are accurate to 1 %


@dataclass(frozen=True)
class Predicted:
    """A model's (`family`) ratio between two kinds; `off` is the logarithm of predicted over true."""

    family: str
    profiled: bool
    measured: InstanceKind
    wanted: InstanceKind
    off: float
    inside: bool

    @property
    def error(self) -> float:
        """The relative error of the ratio."""
        return abs(math.expm1(self.off))


def left_out(
    rows: Sequence[Row], training: Sequence[Row], group: Callable[[Row], str], *, quick: bool = False
) -> list[Predicted]:
    """Predict every ratio at 16 bits among `rows`, with the sort of work known and unknown, from a fit to the rows of
    `training` in other groups.

    With `quick`, spreads and calibration are those shipped with the product.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.precision == "fp16":
            groups[group(row)].append(row)
    return [
        predicted
        for name, mine in sorted(groups.items())
        for model in [_fitted([row for row in training if group(row) != name], quick=quick)]
        for job in _jobs(mine)
        for profiled in (True, False)
        for predicted in _ratios(model, job, profiled=profiled)
    ]


def gpu_left_out(rows: Sequence[Row], training: Sequence[Row]) -> list[Predicted]:
    """Predict every ratio at 16 bits without the rows of the target GPU and without those of the model. Spreads and
    calibration are those shipped with the product."""
    asked = [row for row in rows if row.precision == "fp16"]
    return [
        predicted
        for family, gpu in sorted({(row.family, row.gpu) for row in asked})
        for others in [[row for row in training if row.family != family and row.gpu != gpu]]
        for model in [_fitted(others, quick=True)]
        for job in _jobs(row for row in asked if row.family == family)
        for profiled in (True, False)
        for predicted in _ratios(model, job, profiled=profiled)
        if predicted.wanted[0] == gpu
    ]


def one_ratio_per_pair(rows: Sequence[Row]) -> list[float]:
    """The relative error of each ratio at 16 bits if each pair of GPUs has one ratio for all models, their median.
    That is about the best possible without knowing anything about the model."""
    logs: dict[tuple[InstanceKind, InstanceKind], list[float]] = defaultdict(list)
    for job in _jobs(row for row in rows if row.precision == "fp16"):
        for known, wanted in itertools.permutations(job, 2):
            logs[known.kind, wanted.kind].append(math.log(wanted.steps_per_s / known.steps_per_s))
    return [abs(math.expm1(statistics.median(of) - log)) for of in logs.values() for log in of]


def _jobs(rows: Iterable[Row]) -> Iterable[list[Row]]:
    jobs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        jobs[row.job].append(row)
    return jobs.values()


def _fitted(rows: Sequence[Row], *, quick: bool) -> RatioModel:
    if quick:
        return replace(fit(rows, FITTED_NARROW.spreads), calibration=FITTED_NARROW.calibration)
    return calibrated(fit(rows), rows)


def _ratios(model: RatioModel, job: Sequence[Row], *, profiled: bool) -> list[Predicted]:
    found = []
    for known in job:
        cell = Cell(known.kind, math.log(known.steps_per_s), _MEASURED_VARIANCE)
        wanted = [row for row in job if row.kind != known.kind]
        posterior = model.posterior(
            [row.kind for row in wanted], [cell], precision=known.precision, sort=known.sort if profiled else None
        )
        for index, row in enumerate(wanted):
            off = float(posterior.mean[index]) - math.log(row.steps_per_s)
            found.append(
                Predicted(known.family, profiled, known.kind, row.kind, off, abs(off) <= posterior.spread(index))
            )
    return found
