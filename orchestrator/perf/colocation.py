"""Colocation: how fast a job is beside another one on the same GPUs of one machine. Pure.

A job's rate beside another is its rate alone times a slowdown, whose logarithm is a sum of normal effects:

    log slowdown = (shared + GPU) . (1, x, x of the other)
                   + strain of the GPU . (sensitivity + demand of the other + pair of families + pair of jobs)

x is the logarithm of the rate alone: long steps are slowed down less. Sensitivity and demand each belong to a family
of models and to a job, and are partly the same on all GPUs and partly specific to one. `strain` says how much more jobs
differ on one GPU than on another; it is learned from the errors of leaving out one measurement at a time. So all
measurements, on whatever GPUs, are conditioned on at once, as in `ratios.RatioModel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.kinds import InstanceKind
from orchestrator.perf.posterior import Floats, Posterior
from orchestrator.perf.structure import numbered, same
from providers.hardware import GPUS

# Two jobs that take turns on a GPU have half of it each; two that never wait for each other, all of it.
_USUAL_LOG, _USUAL_SD = math.log(0.65), 0.3
# Steps per second of the middle of the range in which x is used (as far as e**3 either way): beyond it, what a program
# calls a step says nothing.
_USUAL_LOG_RATE, _MOST_X = 2.0, 3.0
_STRAIN_DOF = 6.0  # a strain that is not measured is known about as well as from so many measurements
_STRAIN_ROUNDS = 3
_SPREAD_DOF = 2.0
_LEAST_VARIANCE = 1e-4  # no rate is known better than to 1 %


@dataclass(frozen=True, slots=True)
class Effects:
    """Standard deviations of the effects on the natural logarithm of the slowdown; the defaults are expectations.

    `sensitivity` and `demand`: between families; `within`: variance between jobs of a family relative to that;
    `families`: of a pair of families; `pair`: of a pair of jobs; `residual`: of a pair on one kind of machine; `slope`:
    of x, and `within_slope`: variance of a family's slope relative to that; `gpu`: of a GPU, for all jobs; `by_gpu`:
    variance specific to one GPU relative to what is the same on all.
    """

    sensitivity: float = 0.2
    demand: float = 0.2
    within: float = 0.5
    families: float = 0.1
    pair: float = 0.1
    residual: float = 0.1
    slope: float = 0.1
    within_slope: float = 0.5
    gpu: float = 0.2
    by_gpu: float = 1.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """A `job` beside the `other` one, on the GPUs of one machine of `kind`.

    `log_alone` is the natural logarithm of its steps per second alone there, known with the variance `variance`;
    `log_other` is that of the other. Raises ValueError if one of them is not finite, or the variance is negative, and
    KeyError for a GPU that is not in the hardware table.
    """

    job: str
    family: str
    other: str
    other_family: str
    kind: InstanceKind
    log_alone: float
    log_other: float
    variance: float = 0.0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.log_alone, self.log_other, self.variance))) or self.variance < 0:
            raise ValueError(f"the rates of jobs alone must be positive and finite: {self}")
        if self.kind[0] is None or self.kind[1] <= 0:
            raise ValueError(f"only GPUs can be shared: {self}")
        GPUS[self.kind[0]]


@dataclass(frozen=True, slots=True)
class PairCell:
    """A measured rate of a pairing: `log_rate` with the variance of its measurement. Raises ValueError for a rate that
    is not finite."""

    of: Pairing
    log_rate: float
    variance: float = _LEAST_VARIANCE

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_rate) or not 0 <= self.variance < math.inf:
            raise ValueError(f"a rate beside another job must be positive and finite: {self}")


@dataclass(frozen=True, slots=True, eq=False)
class ColocationModel:
    """Fitted `effects`, and what tables say of the shared part: `mean` (3 + 3 gpus,) and `covariance` of level and
    slopes, of all GPUs and then of each of `gpus`, with its `strain`.

    `calibration` scales the intervals: with it, nine of ten hold when each family is left out in turn.
    """

    effects: Effects
    gpus: tuple[str, ...]
    strain: tuple[float, ...]
    mean: Floats
    covariance: Floats
    families: int
    calibration: float = 1.0

    @property
    def dof(self) -> float:
        """Degrees of freedom: the spread between families is known from this many of them and the prior."""
        return max(self.families - 1, 1) + _SPREAD_DOF

    def posterior(self, wanted: Sequence[Pairing], evidence: Sequence[PairCell] = ()) -> Posterior:
        """The logarithms of the rates of the `wanted` pairings, given measurements of any pairings."""
        cells = sorted(evidence, key=repr)  # sums are the same in any order
        where, n = (*wanted, *(cell.of for cell in cells)), len(wanted)
        layout = _Layout.of(where, self)
        mean = layout.shared @ self.mean + np.array([each.log_alone for each in where])
        fixed, strained = layout.fixed(self), layout.strained(self.effects)
        strain = layout.strain(self)
        if not cells:
            covariance = fixed + strained * np.outer(strain, strain)
            return Posterior(mean, covariance * self.calibration**2, self.dof)
        noise = np.array([cell.variance + _LEAST_VARIANCE for cell in cells])
        off = np.array([cell.log_rate for cell in cells]) - mean[n:]
        of_cells = fixed[n:, n:] + np.diag(noise), strained[n:, n:]
        strain, inverse = _strained(*of_cells, off, layout.gpu, strain, n)
        covariance = fixed + strained * np.outer(strain, strain)
        gain = covariance[:n, n:] @ inverse
        scale = covariance[:n, :n] - gain @ covariance[n:, :n]
        scale = (scale + scale.T) / 2 * self.calibration**2
        return Posterior(mean[:n] + gain @ off, scale, self.dof + len(cells))

    def learn(self, table: Iterable[PairCell]) -> ColocationModel:
        """The model after a table of jobs that are nobody's here: it keeps what they say of all jobs, and of GPUs. The
        order of cells does not matter."""
        cells = sorted(table, key=repr)
        names = sorted({*self.gpus, *(str(cell.of.kind[0]) for cell in cells)})
        wider = self._over(names)
        layout = _Layout.of([cell.of for cell in cells], wider)
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ wider.mean
        noise = np.diag([cell.variance + _LEAST_VARIANCE for cell in cells])
        fixed, strained = layout.fixed(wider) + noise, layout.strained(self.effects)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, layout.strain(wider), 0)
        gain = wider.covariance @ layout.shared.T @ inverse
        covariance = wider.covariance - gain @ layout.shared @ wider.covariance
        known = {**dict(zip(names, wider.strain, strict=True)), **dict(zip(layout.names, strain.tolist(), strict=True))}
        return replace(
            wider,
            strain=tuple(known[name] for name in names),
            mean=wider.mean + gain @ off,
            covariance=(covariance + covariance.T) / 2,
            families=self.families + len({cell.of.family for cell in cells}),
        )

    def surprise(self, cells: Sequence[PairCell]) -> float:
        """Minus the logarithm of the likelihood of the cells, up to a constant."""
        layout = _Layout.of([cell.of for cell in cells], self)
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ self.mean
        noise = np.diag([cell.variance + _LEAST_VARIANCE for cell in cells])
        fixed, strained = layout.fixed(self) + noise, layout.strained(self.effects)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, layout.strain(self), 0)
        size = np.linalg.slogdet(fixed + strained * np.outer(strain, strain))[1]
        return float(off @ inverse @ off + size) / 2

    def _over(self, names: Sequence[str]) -> ColocationModel:
        """The same with more GPUs, of which nothing is known."""
        mean, covariance = np.zeros(3 + 3 * len(names)), np.diag([0.0] * 3 + [*_of_one_gpu(self.effects)] * len(names))
        at = np.array([0, 1, 2, *(3 + 3 * names.index(name) + i for name in self.gpus for i in range(3))])
        mean[at] = self.mean
        covariance[np.ix_(at, at)] = self.covariance
        known = dict(zip(self.gpus, self.strain, strict=True))
        strain = tuple(known.get(name, 1.0) for name in names)
        return replace(self, gpus=tuple(names), strain=strain, mean=mean, covariance=covariance)


def untaught(effects: Effects) -> ColocationModel:
    """A model before any table."""
    variance = np.array([_USUAL_SD**2, effects.slope**2, effects.slope**2])
    return ColocationModel(effects, (), (), np.array([_USUAL_LOG, 0.0, 0.0]), np.diag(variance), 0)


def _of_one_gpu(effects: Effects) -> tuple[float, float, float]:
    slope = effects.by_gpu * effects.slope**2
    return effects.gpu**2, slope, slope


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """n pairings as arrays: numbers of names (n,), `x` (n, 3), and `shared` (n, 3 + 3 gpus), their shares in the shared
    part; `unknown` (n,): whether the model does not know the GPU."""

    job: NDArray[np.int64]
    family: NDArray[np.int64]
    other: NDArray[np.int64]
    other_family: NDArray[np.int64]
    gpu: NDArray[np.int64]
    names: list[str]
    same_kind: NDArray[np.bool_]
    x: Floats
    shared: Floats
    unknown: NDArray[np.bool_]
    alone: Floats

    @classmethod
    def of(cls, where: Sequence[Pairing], model: ColocationModel) -> _Layout:
        n, gpus = len(where), [str(each.kind[0]) for each in where]
        jobs = numbered([name for each in where for name in (each.job, each.other)]).reshape(n, 2)
        families = numbered([name for each in where for name in (each.family, each.other_family)]).reshape(n, 2)
        logs = np.array([[each.log_alone, each.log_other] for each in where]).reshape(n, 2)
        x = np.column_stack([np.ones(n), np.clip(logs - _USUAL_LOG_RATE, -_MOST_X, _MOST_X)])
        shared = np.zeros((n, 3 + 3 * len(model.gpus)))
        shared[:, :3] = x
        for number, name in enumerate(model.gpus):
            here = np.array([gpu == name for gpu in gpus], dtype=bool)
            shared[here, 3 + 3 * number : 6 + 3 * number] = x[here]
        alone = np.array([each.variance for each in where])
        same_kind = same([f"{gpu}:{count}" for gpu, count in (each.kind for each in where)])
        columns = jobs[:, 0], families[:, 0], jobs[:, 1], families[:, 1]
        unknown = np.array([gpu not in model.gpus for gpu in gpus], dtype=bool)
        return cls(*columns, numbered(gpus), gpus, same_kind, x, shared, unknown, alone)

    def strain(self, model: ColocationModel) -> Floats:
        """(n,): of the GPU of each, before any evidence."""
        known = dict(zip(model.gpus, model.strain, strict=True))
        return np.array([known.get(name, 1.0) for name in self.names])

    def fixed(self, model: ColocationModel) -> Floats:
        """(n, n): the covariance of what is shared, and of the rates alone."""
        covariance = self.shared @ model.covariance @ self.shared.T
        new = _equal(self.gpu) & self.unknown[:, None] & self.unknown[None, :]
        covariance += new * ((self.x * np.array(_of_one_gpu(model.effects))) @ self.x.T)
        alone = np.sqrt(self.alone)
        covariance += np.outer(alone, alone) * (_equal(self.job) & self.same_kind)
        return covariance

    def strained(self, effects: Effects) -> Floats:
        """(n, n): the covariance of what is specific to families, jobs and pairs, for a strain of 1."""
        family, other_family = _equal(self.family), _equal(self.other_family)
        job, other = _equal(self.job), _equal(self.other)
        slope = effects.within_slope * effects.slope**2
        own, its = self.x[:, 1], self.x[:, 2]
        covariance = family * (effects.sensitivity**2 + slope * np.outer(own, own))
        covariance += other_family * (effects.demand**2 + slope * np.outer(its, its))
        covariance += effects.within * (effects.sensitivity**2 * job + effects.demand**2 * other)
        covariance += effects.families**2 * (family & other_family) + effects.pair**2 * (job & other)
        covariance *= 1 + effects.by_gpu * _equal(self.gpu)
        covariance += effects.residual**2 * (job & other & self.same_kind)
        return covariance


def _equal(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = numbers[:, None] == numbers[None, :]
    return found


def _strained(
    fixed: Floats, strained: Floats, off: Floats, gpu: NDArray[np.int64], start: Floats, first: int
) -> tuple[Floats, Floats]:
    """(strain of every pairing, inverse of the covariance of the measured ones). The measured ones are those from
    `first` on. A strain is right if the errors of leaving out one measurement at a time are as large as expected."""
    strain = start
    here = gpu[first:]
    for _ in range(_STRAIN_ROUNDS):
        inverse = _inverse(fixed + strained * np.outer(strain[first:], strain[first:]))
        squares = (inverse @ off) ** 2 / np.diag(inverse)  # Rasmussen and Williams 2006, 5.12
        strain = strain.copy()
        for number in np.unique(here):
            mine = here == number
            at = gpu == number
            then, now = float(start[at][0]), float(strain[at][0])
            variance = (_STRAIN_DOF * then**2 + now**2 * squares[mine].sum()) / (_STRAIN_DOF + mine.sum())
            strain[at] = math.sqrt(variance)
    return strain, _inverse(fixed + strained * np.outer(strain[first:], strain[first:]))


def _inverse(covariance: Floats) -> Floats:
    return np.asarray(np.linalg.inv(covariance), dtype=np.float64)
