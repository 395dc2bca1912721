"""RatioModel: predicts the rate of a model on one kind of hardware from its rate on others. Pure.

A logarithm of steps per second is the sum of a part shared by all models, a part of a family of models, and a part of
one job, each linear in a few figures of the hardware (`kinds.FEATURES`) plus an offset per architecture:

    log rate = (shared + sort + family + job) . features + offsets (shared + family + job) + shift + noise

`sort` is included if the tables say what their models compute. All parts are normal, so all measurements, on any kinds,
are conditioned on at once. Their sizes (`Spreads`) are fitted to tables by marginal likelihood, with physics as the
prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.descent import Steps, descend
from orchestrator.perf.kinds import REFERENCE, InstanceKind, narrow
from orchestrator.perf.posterior import Floats, Posterior
from orchestrator.perf.structure import (
    DOUBLINGS,
    LINK_DOUBLINGS,
    Design,
    Spreads,
    blank,
    deviations,
    numbered,
    same,
    weights,
)
from orchestrator.perf.work import EFFICIENCY_SD, SORTS, Sort, Work
from providers.hardware import Precision

_TABLE_VARIANCE = 1e-4  # a published rate is accurate to 1 %
_UNIT_VARIANCE = 25.0  # for a rate whose unit is not a step
# Before any table, the logarithm of each spread is assumed known to +-0.5: as well as two families would determine it.
_SPREAD_LOG_SD = 0.5
_SPREAD_DOF = 2.0
_STEPS = Steps(first=0.5, least=0.02, gain=1e-9)
_Z95 = 1.645


@dataclass(frozen=True, slots=True)
class Row:
    """One measured rate of a table: a `job` (a model and its settings) of a `family` of models on a kind of hardware.

    If `per_step` is False, the rate counts something else (tokens, images), the same for all rows of the job. Raises
    ValueError if the rate or the number of GPUs is not positive.
    """

    job: str
    family: str
    gpu: str
    gpu_count: int
    steps_per_s: float
    precision: Precision = "fp32"
    sort: Sort | None = None
    per_step: bool = True

    def __post_init__(self) -> None:
        if not (self.steps_per_s > 0 and math.isfinite(self.steps_per_s)) or self.gpu_count <= 0:
            raise ValueError(f"the rate and the number of GPUs must be positive: {self}")

    @property
    def kind(self) -> InstanceKind:
        """The kind of hardware: (GPU, count)."""
        return (self.gpu, self.gpu_count)


@dataclass(frozen=True, slots=True)
class Cell:
    """A measured rate as evidence for one job: `log_rate` with the variance of its measurement.

    `nearness`: 0 the job itself, 1 another job of its family.
    """

    kind: InstanceKind
    log_rate: float
    variance: float
    nearness: int = 0
    job: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RatioModel:
    """Fitted `spreads`, and the tables' estimate of the shared part: features, then those of each of `sorts`, then the
    `offsets` of generations and chips.

    `per_step`: whether the tables count steps, so that a rate says something about ratios. `calibration` scales the
    intervals of a job measured on some GPU: with it, nine of ten intervals hold when each family is left out in turn.
    """

    spreads: Spreads
    offsets: tuple[str, ...]
    mean: Floats
    covariance: Floats
    families: int
    sorts: tuple[Sort, ...] = ()
    per_step: bool = True
    calibration: float = 1.0

    @property
    def dof(self) -> float:
        """Degrees of freedom: the spread between families is known from this many of them and the prior."""
        return max(self.families - 1, 1) + _SPREAD_DOF

    def posterior(
        self,
        kinds: Sequence[InstanceKind],
        evidence: Sequence[Cell] = (),
        work: Work | None = None,
        *,
        precision: Precision = "fp32",
        sort: Sort | None = None,
    ) -> Posterior:
        """The rates on `kinds` of a job whose family is in no table, given its measurements.

        With `work`, the roofline gives the level of the rates; ratios between GPUs still come from the tables if they
        hold jobs of its sort. Raises KeyError for a GPU that is not in the hardware table.
        """
        cells = tuple(evidence)
        names = ["", *sorted({cell.job for cell in cells if cell.nearness})]
        job = (*[0] * len(kinds), *(names.index(cell.job) if cell.nearness else 0 for cell in cells))
        sort = work.sort if work is not None and sort is None else sort
        where = (*kinds, *(cell.kind for cell in cells))
        mean, covariance, on_host = _unmeasured(self, where, job, work, precision, sort)
        n = len(kinds)
        if not cells:
            return Posterior(mean, covariance, self.dof)
        measured = np.array([cell.log_rate for cell in cells])
        noise = np.array([cell.variance for cell in cells])
        off = measured - mean[n:]
        beyond = 0.0 if work is not None else self._beyond(off)
        off -= beyond
        solved = np.linalg.solve(covariance[n:, n:] + np.diag(noise), np.column_stack([covariance[n:, :n], off]))
        gain, surprise = solved[:, :n].T, float(off @ solved[:, n])
        widen = (self.dof + surprise) / (self.dof + len(cells))
        if any(not cell.nearness and not aside for cell, aside in zip(cells, on_host[n:], strict=True)):
            widen *= self.calibration**2
        location = mean[:n] + beyond + gain @ off
        scale = covariance[:n, :n] - gain @ covariance[n:, :n]
        return Posterior(location, (scale + scale.T) / 2 * widen, self.dof + len(cells))

    def unmeasured(
        self,
        where: Sequence[InstanceKind],
        job: Sequence[int],
        work: Work | None,
        precision: Precision,
        sort: Sort | None,
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """(mean, covariance, whether it is on a host) of the rates of some jobs of one family, before any measurement;
        `job` numbers them."""
        family = np.zeros(len(where), dtype=np.int64)
        design = Design.of(where, [precision] * len(where), [sort] * len(where))
        spreads = self.spreads
        if work is None:
            mean, covariance = self._prior(design)
        elif sort in self.sorts:
            mean, covariance = self._anchored(design, where, work, precision)
            spreads = replace(spreads, level=EFFICIENCY_SD)
        else:
            mean = np.array([work.log_rate(kind, precision, hosted=False) for kind in where])
            mean += design.features[:, DOUBLINGS:] @ self.mean[DOUBLINGS : LINK_DOUBLINGS + 1]
            mean = np.where(design.on_host, mean, np.minimum(mean, work.log_host_rate))
            covariance = np.zeros((len(where), len(where)))
            spreads = replace(spreads, level=EFFICIENCY_SD)
        if work is not None:
            # On the host the rate was measured, not computed from figures that may be inaccurate.
            design.features[design.on_host] = 0.0
        unsorted = bool(self.sorts) and sort not in self.sorts
        covariance = covariance + deviations(design, family, np.array(job), spreads, with_sort=unsorted)
        return mean, covariance, design.on_host

    def learn(self, rows: Iterable[Row]) -> RatioModel:
        """The model after more tables, with the same spreads. The order of rows does not matter."""
        table = _sorted(rows)
        design = _design(table)
        family, job = _grouped(table)
        names = (*self.offsets, *sorted(design.labels - set(self.offsets)))
        new = len(names) - len(self.offsets)
        mean = np.concatenate([self.mean, np.zeros(new)])
        prior = np.zeros((len(mean), len(mean)))
        prior[: len(self.mean), : len(self.mean)] = self.covariance
        prior[len(self.mean) :, len(self.mean) :] = self.spreads.offset**2 * np.eye(new)
        taken = weights(design, self.sorts, names)
        off = _off(table, job, taken @ mean + design.shift)
        within = _within(table, design, family, job, self.spreads)
        gain = np.linalg.solve(taken @ prior @ taken.T + within, taken @ prior).T
        covariance = prior - gain @ taken @ prior
        families = self.families + len(set(family.tolist()))
        return replace(
            self, offsets=names, mean=mean + gain @ off, covariance=(covariance + covariance.T) / 2, families=families
        )

    def _anchored(
        self, design: Design, where: Sequence[InstanceKind], work: Work, precision: Precision
    ) -> tuple[Floats, Floats]:
        """Mean and covariance of the rates of `work` from the roofline of the reference GPU and the ratios of the
        tables.

        A host keeps its measured rate, and a step that is limited by the host's part is equally fast on every GPU.
        """
        anchor: InstanceKind = (REFERENCE[narrow(precision)], 1)
        with_anchor = [*where, anchor]
        known, shared = self._prior(
            Design.of(with_anchor, [precision] * len(with_anchor), [design.sort[0]] * len(with_anchor))
        )
        mean = np.minimum(known - known[-1] + work.log_rate(anchor, precision, hosted=False), work.log_host_rate)[:-1]
        mean = np.where(design.on_host, [work.log_rate(kind, precision) for kind in where], mean)
        apart = np.hstack([np.eye(len(where)), -np.ones((len(where), 1))]) * ~design.on_host[:, None]
        return mean, apart @ shared @ apart.T

    def _beyond(self, off: Floats) -> float:
        """By how much a job lies outside the middle 90 % of the tables' rates, on average.

        Fast steps gain less from fast hardware than slow ones, which is useful within the range of the tables. But a
        program's notion of a step is arbitrary: outside that range a rate says nothing more about ratios, and nothing
        at all if the tables count no steps.
        """
        whole = float(off.mean())
        if not self.per_step:
            return whole
        usual = _Z95 * self.spreads.level * math.sqrt(1 + self.spreads.within)
        return whole - min(max(whole, -usual), usual)

    def _prior(self, design: Design) -> tuple[Floats, Floats]:
        taken = weights(design, self.sorts, self.offsets)
        covariance = taken @ self.covariance @ taken.T
        for labels in (design.generation, design.architecture):
            unknown = np.array([name not in self.offsets for name in labels])
            if unknown.any():
                covariance += self.spreads.offset**2 / 2 * (same(labels) & unknown[:, None] & unknown[None, :])
        return taken @ self.mean + design.shift, covariance


@lru_cache(maxsize=128)
def _unmeasured(
    model: RatioModel,
    where: tuple[InstanceKind, ...],
    job: tuple[int, ...],
    work: Work | None,
    precision: Precision,
    sort: Sort | None,
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The same for the jobs of one market, most of which ask for the same kinds."""
    found = model.unmeasured(where, job, work, precision, sort)
    for column in found:
        column.setflags(write=False)
    return found


def fit(rows: Iterable[Row], spreads: Spreads | None = None) -> RatioModel:
    """Fit the spreads that make the rows most likely (times their prior), and the shared part given the rows.

    Deterministic, whatever the order of rows. Rows with several GPUs determine `doubling` and `gang`, those with a sort
    `sort`, those in steps `level`, the others `residual`; without such rows these keep their prior. If `spreads` are
    given, they are used as they are. Raises ValueError without rows, KeyError for a GPU not in the hardware table.
    """
    table = _sorted(rows)
    per_step = any(row.per_step for row in table)
    # A table of steps is of one batch size and one release.
    prior = Spreads(residual=0.0) if per_step else Spreads()
    family, job = _grouped(table)
    design = _design(table)
    sorts = SORTS if any(design.sort) else ()  # sorts without rows keep their prior
    names = sorted(design.labels)
    fixed = {
        *(() if (design.features[:, DOUBLINGS] > 0).any() else ("doubling", "gang")),
        *(() if sorts else ("sort",)),
        *(("residual", "offset") if per_step else ("level",)),
    }
    free = [f.name for f in fields(Spreads) if f.name not in fixed]
    taken = weights(design, sorts, names)
    mean, _ = blank(prior, sorts, per_step)
    off = _off(table, job, taken[:, : len(mean)] @ mean + design.shift)

    def loss(tried: Spreads) -> float:
        _, variance = blank(tried, sorts, per_step)
        variance = np.concatenate([variance, np.full(len(names), tried.offset**2)])
        covariance = (taken * variance) @ taken.T + _within(table, design, family, job, tried)
        lower = np.linalg.cholesky(covariance)
        whitened = np.linalg.solve(lower, off)
        unlikely = sum((math.log(getattr(tried, name) / getattr(prior, name)) / _SPREAD_LOG_SD) ** 2 for name in free)
        return float(whitened @ whitened / 2 + np.log(np.diag(lower)).sum()) + unlikely / 2

    return _untaught(spreads or descend(loss, prior, free, _STEPS), sorts, per_step).learn(table)


def calibrated(model: RatioModel, rows: Iterable[Row]) -> RatioModel:
    """The model, fitted to these rows, with a factor on every interval: with it, nine of ten ratios of a family that
    was left out lie within their interval. Raises ValueError without a job on two kinds of hardware."""
    table = _sorted(rows)
    untaught = _untaught(model.spreads, model.sorts, model.per_step)
    off = []
    for family in sorted({row.family for row in table}):
        others = untaught.learn(row for row in table if row.family != family)
        left_out: dict[str, list[Row]] = {}
        for row in table:
            if row.family == family:
                left_out.setdefault(row.job, []).append(row)
        for mine in left_out.values():
            kinds = [row.kind for row in mine]
            for row in mine:
                cell = Cell(row.kind, math.log(row.steps_per_s), _TABLE_VARIANCE)
                posterior = others.posterior(kinds, [cell], precision=row.precision, sort=row.sort)
                off += [
                    abs(math.log(other.steps_per_s) - posterior.mean[i]) / posterior.spread(i)
                    for i, other in enumerate(mine)
                    if other.kind != row.kind
                ]
    if not off:
        raise ValueError("calibration needs jobs measured on several kinds of hardware")
    return replace(model, calibration=float(np.quantile(off, 0.9)))


def _untaught(spreads: Spreads, sorts: tuple[Sort, ...], per_step: bool) -> RatioModel:
    """A model before any table."""
    mean, variance = blank(spreads, sorts, per_step)
    return RatioModel(spreads, (), mean, np.diag(variance), 0, sorts, per_step)


def _sorted(rows: Iterable[Row]) -> list[Row]:
    table = sorted(rows, key=lambda row: (row.family, row.job, row.gpu, row.gpu_count, row.steps_per_s))
    if not table:
        raise ValueError("the table has no rows")
    return table


def _design(table: Sequence[Row]) -> Design:
    return Design.of([row.kind for row in table], [row.precision for row in table], [row.sort for row in table])


def _grouped(table: Sequence[Row]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return numbered([row.family for row in table]), numbered([row.job for row in table])


def _off(table: Sequence[Row], job: NDArray[np.int64], expected: Floats) -> Floats:
    """The deviations of the log rates; for rates that do not count steps, only relative to the job's other rows."""
    off: Floats = np.log([row.steps_per_s for row in table]) - expected
    for number in set(job[[not row.per_step for row in table]].tolist()):
        off[job == number] -= off[job == number].mean()
    return off


def _within(
    table: Sequence[Row],
    design: Design,
    family: NDArray[np.int64],
    job: NDArray[np.int64],
    spreads: Spreads,
) -> Floats:
    """The covariance of rows beyond what all rows of their sort share."""
    unit = np.array([0.0 if row.per_step else 1.0 for row in table])
    covariance = deviations(design, family, job, spreads, with_sort=False)
    covariance += _UNIT_VARIANCE * np.outer(unit, unit) * (job[:, None] == job[None, :])
    covariance[np.diag_indices_from(covariance)] += _TABLE_VARIANCE
    return covariance
