"""RatioModel: what the rate of a model on one kind of hardware tells of its rate on others. Pure.

A logarithm of steps per second is a sum of what all models share, what a family of models shares and what one job has
for itself, each linear in a few figures of the hardware (`kinds.FEATURES`) plus an offset per architecture:

    log rate = (shared + family + job) . features + offsets (shared + family + job) + shift + noise

All parts are normal, so that everything that was ever measured, on whatever kinds, is conditioned on at once. How
large they are (`Spreads`) is fitted to tables by marginal likelihood; what physics says of them is the prior.

Must not know: prices, who measured, where rows came from, which GPUs exist in a cloud.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.belief import Belief, Floats
from orchestrator.perf.kinds import FEATURES, HOST, Kind, facts
from orchestrator.perf.work import EFFICIENCY_SD, Work

SHARED_MEAN = np.array([2.0, 0.25, 0.25, 0.5, 0.85 * math.log(2)])
"""Half by memory, half by arithmetic, of which half in FP16; another GPU of the same kind adds 85 % per doubling."""
_SHARED_SD = np.array([3.0, 0.25, 0.25, 0.25, 0.2])
_SHARED_OFFSET_SD = 0.3
_TABLE_VARIANCE = 1e-4  # a printed rate is good to 1 %
# The logarithm of each spread is taken to be known to +-0.5 before any table is seen: as much as two families tell.
_SPREAD_LOG_SD = 0.5
_SPREAD_DOF = 2.0
_LEAST_STEP = 0.02
_Z95 = 1.645
_DOUBLINGS = FEATURES.index("doublings")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured rate of a table: `job` (a model and its settings) of a `family` of models on a kind of hardware.

    Raises ValueError when the rate or the number of GPUs is not positive.
    """

    job: str
    family: str
    gpu: str
    gpu_count: int
    steps_per_s: float

    def __post_init__(self) -> None:
        if not (self.steps_per_s > 0 and math.isfinite(self.steps_per_s)) or self.gpu_count <= 0:
            raise ValueError(f"a rate and a number of GPUs must be positive: {self}")

    @property
    def kind(self) -> Kind:
        return (self.gpu, self.gpu_count)


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations between families, of natural logarithms; the defaults are what physics says.

    `level`: steps/s themselves. `exponent`: of each figure of the hardware; a model that does not feel the GPU at all
    (total exponent 0 instead of 1) then lies two standard deviations out. `architecture`: kernels that suit one
    architecture and not another. `doubling`: of scaling to twice the GPUs; `gang`: what one number of GPUs has for
    itself (links, batch split). `within`: variance between jobs of one family over that between families.
    """

    level: float = 1.5
    exponent: float = 0.3
    architecture: float = 0.3
    doubling: float = 0.2
    gang: float = 0.2
    within: float = 0.3


@dataclass(frozen=True, slots=True)
class Cell:
    """A measured rate as evidence for one job: `log_rate` with the variance of its measurement.

    `nearness`: 0 the job itself, 1 another job of its family.
    """

    kind: Kind
    log_rate: float
    variance: float
    nearness: int = 0
    job: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RatioModel:
    """Fitted `spreads`, and what the tables say of the shared part: features first, then `architectures`' offsets."""

    spreads: Spreads
    architectures: tuple[str, ...]
    mean: Floats
    covariance: Floats
    families: int

    @property
    def dof(self) -> float:
        """The spread between families is known from this many of them, and from the prior."""
        return max(self.families - 1, 1) + _SPREAD_DOF

    def belief(self, kinds: Sequence[Kind], evidence: Sequence[Cell] = (), work: Work | None = None) -> Belief:
        """The rates on `kinds` of a job of a family that is in no table, given what was measured of it.

        With `work` the roofline says where the rates lie, and the tables only how far models stray from such figures.
        Raises KeyError for a GPU that is not in the hardware table.
        """
        cells = tuple(evidence)
        where = [*kinds, *(cell.kind for cell in cells)]
        family = np.zeros(len(where), dtype=np.int64)
        names = ["", *sorted({cell.job for cell in cells if cell.nearness})]
        job = np.array([0] * len(kinds) + [names.index(cell.job) if cell.nearness else 0 for cell in cells])
        design = _Design.of(where)
        if work is None:
            mean, covariance = self._prior(design)
            spreads = self.spreads
        else:
            mean = np.array([work.log_rate(kind) for kind in where]) + self.mean[_DOUBLINGS] * design.doublings
            covariance = np.zeros((len(where), len(where)))
            spreads = replace(self.spreads, level=EFFICIENCY_SD)
            # On the host the rate was measured, not computed from figures that could be off.
            design.features[[name == HOST for name in design.architecture]] = 0.0
        covariance = covariance + _deviations(design, family, job, spreads)
        n = len(kinds)
        if not cells:
            return Belief(mean, covariance, self.dof)
        measured = np.array([cell.log_rate for cell in cells])
        noise = np.array([cell.variance for cell in cells])
        gain = np.linalg.solve(covariance[n:, n:] + np.diag(noise), covariance[n:, :n]).T
        off = measured - mean[n:]
        beyond = 0.0 if work is not None else self._beyond(off)
        off -= beyond
        surprise = float(off @ np.linalg.solve(covariance[n:, n:] + np.diag(noise), off))
        widen = (self.dof + surprise) / (self.dof + len(cells))
        location = mean[:n] + beyond + gain @ off
        scale = covariance[:n, :n] - gain @ covariance[n:, :n]
        return Belief(location, (scale + scale.T) / 2 * widen, self.dof + len(cells))

    def learn(self, rows: Iterable[Row]) -> RatioModel:
        """The model after more tables, with the same spreads; whatever the order of rows."""
        table = _sorted(rows)
        design = _Design.of([row.kind for row in table])
        family, job = (_numbered([getattr(row, name) for row in table]) for name in ("family", "job"))
        names = (*self.architectures, *sorted(set(design.architecture) - set(self.architectures)))
        new = len(names) - len(self.architectures)
        mean = np.concatenate([self.mean, np.zeros(new)])
        prior = np.zeros((len(mean), len(mean)))
        prior[: len(self.mean), : len(self.mean)] = self.covariance
        prior[len(self.mean) :, len(self.mean) :] = _SHARED_OFFSET_SD**2 * np.eye(new)
        weights = _weights(design, names)
        off = np.log([row.steps_per_s for row in table]) - weights @ mean - design.shift
        within = _deviations(design, family, job, self.spreads) + _TABLE_VARIANCE * np.eye(len(off))
        gain = np.linalg.solve(weights @ prior @ weights.T + within, weights @ prior).T
        covariance = prior - gain @ weights @ prior
        families = self.families + len(set(family.tolist()))
        return RatioModel(self.spreads, names, mean + gain @ off, (covariance + covariance.T) / 2, families)

    def _beyond(self, off: Floats) -> float:
        """By how much a job lies outside the rates of the tables' middle 90 %, on the whole.

        Fast steps gain less from fast hardware than slow ones, which is worth knowing within the range of the tables.
        But what a program calls a step is its own affair: beyond their range a rate says nothing more of ratios.
        """
        usual = _Z95 * self.spreads.level * math.sqrt(1 + self.spreads.within)
        whole = float(off.mean())
        return whole - min(max(whole, -usual), usual)

    def _prior(self, design: _Design) -> tuple[Floats, Floats]:
        weights = _weights(design, self.architectures)
        unknown = np.array([name not in self.architectures for name in design.architecture])
        same = design.same_architecture & unknown[:, None] & unknown[None, :]
        covariance = weights @ self.covariance @ weights.T + _SHARED_OFFSET_SD**2 * same
        return weights @ self.mean + design.shift, covariance


def fit(rows: Iterable[Row]) -> RatioModel:
    """The spreads that make the rows most likely (times their prior), and the shared part given the rows.

    Deterministic, whatever the order of rows. Rows of several GPUs decide `doubling` and `gang`; without any these stay
    at their prior. Raises ValueError without rows, KeyError for a GPU that is not in the hardware table.
    """
    table = _sorted(rows)
    prior = Spreads()
    family, job = (_numbered([getattr(row, name) for row in table]) for name in ("family", "job"))
    design = _Design.of([row.kind for row in table])
    off = np.log([row.steps_per_s for row in table]) - design.features @ SHARED_MEAN - design.shift
    gangs = bool((design.doublings > 0).any())
    free = [f.name for f in fields(Spreads) if gangs or f.name not in ("doubling", "gang")]

    def loss(spreads: Spreads) -> float:
        covariance = _shared(design) + _deviations(design, family, job, spreads)
        lower = np.linalg.cholesky(covariance + _TABLE_VARIANCE * np.eye(len(off)))
        whitened = np.linalg.solve(lower, off)
        unlikely = sum((math.log(getattr(spreads, name) / getattr(prior, name)) / _SPREAD_LOG_SD) ** 2 for name in free)
        return float(whitened @ whitened / 2 + np.log(np.diag(lower)).sum()) + unlikely / 2

    spreads = _descend(loss, prior, free)
    return RatioModel(spreads, (), SHARED_MEAN, np.diag(_SHARED_SD**2), 0).learn(table)


def _sorted(rows: Iterable[Row]) -> list[Row]:
    table = sorted(rows, key=lambda row: (row.family, row.job, row.gpu, row.gpu_count, row.steps_per_s))
    if not table:
        raise ValueError("a model of ratios needs at least one row")
    return table


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    features: Floats
    architecture: list[str]
    shift: Floats
    own: Floats
    same_architecture: NDArray[np.bool_]
    same_kind: NDArray[np.bool_]

    @property
    def doublings(self) -> Floats:
        column: Floats = self.features[:, _DOUBLINGS]
        return column

    @classmethod
    def of(cls, kinds: Sequence[Kind]) -> _Design:
        found = [facts(kind) for kind in kinds]
        architecture = _numbered([each.architecture for each in found])
        kind = _numbered([f"{gpu}:{count}" for gpu, count in kinds])
        return cls(
            np.array([each.features for each in found]),
            [each.architecture for each in found],
            np.array([each.shift for each in found]),
            np.array([each.own_variance for each in found]),
            architecture[:, None] == architecture[None, :],
            kind[:, None] == kind[None, :],
        )


def _shared(design: _Design) -> Floats:
    weighted = design.features * _SHARED_SD
    covariance: Floats = weighted @ weighted.T + _SHARED_OFFSET_SD**2 * design.same_architecture
    return covariance


def _deviations(design: _Design, family: NDArray[np.int64], job: NDArray[np.int64], spreads: Spreads) -> Floats:
    """Covariance of what families and jobs have for themselves."""
    exponent = spreads.exponent
    weighted = design.features * np.array([spreads.level, exponent, exponent, exponent, spreads.doubling])
    shape = weighted @ weighted.T + spreads.architecture**2 * design.same_architecture
    same_family, same_job = family[:, None] == family[None, :], job[:, None] == job[None, :]
    gang = design.doublings > 0
    own = np.where(gang, spreads.gang**2, 0.0) + design.own
    covariance: Floats = shape * same_family + spreads.within * shape * same_job
    covariance += own[:, None] * (same_job & design.same_kind)
    return covariance


def _descend(loss: Callable[[Spreads], float], start: Spreads, free: Sequence[str]) -> Spreads:
    """Coordinate descent over logarithms; a smooth bowl of six dimensions needs nothing better."""
    best, least = start, loss(start)
    steps = dict.fromkeys(free, 0.5)
    while max(steps.values()) > _LEAST_STEP:
        for name in free:
            for factor in (math.exp(steps[name]), math.exp(-steps[name])):
                trial = replace(best, **{name: getattr(best, name) * factor})
                value = loss(trial)
                if value < least - 1e-9:
                    best, least = trial, value
                    break
            else:
                steps[name] /= 2
    return best


def _weights(design: _Design, architectures: Sequence[str]) -> Floats:
    """What each kind takes of the shared part: its features, and the offset of its architecture if that is known."""
    offsets = [[float(name == column) for column in architectures] for name in design.architecture]
    return np.hstack([design.features, np.array(offsets).reshape(len(offsets), len(architectures))])


def _numbered(names: Sequence[str]) -> NDArray[np.int64]:
    index = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([index[name] for name in names], dtype=np.int64)
