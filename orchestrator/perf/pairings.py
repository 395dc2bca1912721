"""Pairings: a job beside another one on a kind of GPU, and the covariance of their rates. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.kinds import InstanceKind
from orchestrator.perf.posterior import Floats
from providers.hardware import GPUS

# Steps per second of the middle of the range in which x is used (as far as e**3 either way): beyond it, a program's
# notion of a step carries no information.
_USUAL_LOG_RATE, _MOST_X = 2.0, 3.0
_SAME_LOG = 1e-6  # logarithms that differ by less are equal except for rounding
LEAST_VARIANCE = 1e-4
"""No rate is known better than to 1 %."""
Indices = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Indexes of two lists of pairings, as arrays that broadcast: (n, 1) and (m,) for a matrix, (n,) twice for a
diagonal."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Standard deviations of the effects on the natural logarithm of the slowdown; the defaults are expectations.

    `sensitivity` and `demand`: between families; `within`: variance between jobs of a family relative to that;
    `families`: of a pair of families; `pair`: of a pair of jobs; `residual`: of a pair on one kind of machine; `slope`:
    of x, and `within_slope`: variance of a family's slope relative to that; `gpu`: of a GPU, for all jobs; `by_gpu`:
    variance specific to one GPU relative to the variance that is the same on all.
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

    @property
    def of_one_gpu(self) -> tuple[float, float, float]:
        """Variances of level and slopes of a GPU, for all jobs."""
        slope = self.by_gpu * self.slope**2
        return self.gpu**2, slope, slope


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
        check_shared(self.kind)


def check_shared(kind: InstanceKind) -> None:
    """Raises ValueError for a kind without GPUs, KeyError for a GPU that is not in the hardware table."""
    gpu, count = kind
    if gpu is None or count <= 0:
        raise ValueError(f"only GPUs can be shared, but {gpu} with {count} GPUs has none")
    GPUS[gpu]


@dataclass(frozen=True, slots=True)
class PairCell:
    """A measured rate of a pairing: `log_rate` with the variance of its measurement. Raises ValueError for a rate that
    is not finite."""

    of: Pairing
    log_rate: float
    variance: float = LEAST_VARIANCE

    def __post_init__(self) -> None:
        if not math.isfinite(self.log_rate) or not 0 <= self.variance < math.inf:
            raise ValueError(f"a rate beside another job must be positive and finite: {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """n pairings as arrays: numbers of names (n,), `x` (n, 3), and `shared` (n, 3 + 3 gpus), their shares in the shared
    part; `unknown` (n,): whether the model does not know the GPU; `log_alone` and `alone` (n,): the logarithm of the
    rate alone, and its variance."""

    job: NDArray[np.int64]
    family: NDArray[np.int64]
    other: NDArray[np.int64]
    other_family: NDArray[np.int64]
    gpu: NDArray[np.int64]
    names: list[str]
    of_kind: NDArray[np.int64]
    x: Floats
    shared: Floats
    unknown: NDArray[np.bool_]
    log_alone: Floats
    alone: Floats

    @classmethod
    def of(cls, where: Sequence[Pairing], known: Sequence[str], numbers: dict[str, int]) -> Layout:
        """The layout of pairings for a model that knows these GPUs. `numbers` are of names; new ones are added."""
        n, gpus = len(where), [str(each.kind[0]) for each in where]

        def numbered(names: Iterable[str]) -> NDArray[np.int64]:
            return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)

        jobs = numbered(name for each in where for name in (each.job, each.other)).reshape(n, 2)
        families = numbered(name for each in where for name in (each.family, each.other_family)).reshape(n, 2)
        logs = np.array([[each.log_alone, each.log_other] for each in where]).reshape(n, 2)
        x = np.column_stack([np.ones(n), np.clip(logs - _USUAL_LOG_RATE, -_MOST_X, _MOST_X)])
        shared = np.zeros((n, 3 + 3 * len(known)))
        shared[:, :3] = x
        for number, name in enumerate(known):
            here = np.array([gpu == name for gpu in gpus], dtype=bool)
            shared[here, 3 + 3 * number : 6 + 3 * number] = x[here]
        alone = np.array([each.variance for each in where])
        kinds = numbered(f"{gpu}:{count}" for gpu, count in (each.kind for each in where))
        columns = jobs[:, 0], families[:, 0], jobs[:, 1], families[:, 1]
        unknown = np.array([gpu not in known for gpu in gpus], dtype=bool)
        return cls(*columns, numbered(gpus), gpus, kinds, x, shared, unknown, logs[:, 0], alone)

    def then(self, other: Layout) -> Layout:
        """These pairings followed by the others, for the same model and with the same numbers of names."""
        columns = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(Layout))
        joined: list[Any] = [one + two if isinstance(one, list) else np.concatenate([one, two]) for one, two in columns]
        return Layout(*joined)

    def fixed(self, effects: Effects, shared: Floats, at: Indices) -> Floats:
        """The covariance of the shared part (given the covariance of its parts) and of the rates alone, for the
        pairings `at`."""
        rows, columns = at
        covariance = _dots(self.shared @ shared, self.shared, at)
        new = _equal(self.gpu, at) & self.unknown[rows] & self.unknown[columns]
        covariance += new * _dots(self.x * np.array(effects.of_one_gpu), self.x, at)
        error = np.sqrt(self.alone)
        # Two differing estimates of one rate alone come from different evidence, so their errors differ.
        agree = np.abs(self.log_alone[rows] - self.log_alone[columns]) < _SAME_LOG
        same_alone = _equal(self.job, at) & _equal(self.of_kind, at) & agree
        return np.asarray(covariance + error[rows] * error[columns] * same_alone)

    def strained(self, effects: Effects, at: Indices) -> Floats:
        """The covariance of the effects specific to families, jobs and pairs, for a strain of 1, for the pairings
        `at`."""
        rows, columns = at
        family, other_family = _equal(self.family, at), _equal(self.other_family, at)
        job, other = _equal(self.job, at), _equal(self.other, at)
        slope = effects.within_slope * effects.slope**2
        own, its = self.x[:, 1], self.x[:, 2]
        covariance = family * (effects.sensitivity**2 + slope * own[rows] * own[columns])
        covariance += other_family * (effects.demand**2 + slope * its[rows] * its[columns])
        covariance += effects.within * (effects.sensitivity**2 * job + effects.demand**2 * other)
        covariance += effects.families**2 * (family & other_family) + effects.pair**2 * (job & other)
        covariance *= 1 + effects.by_gpu * _equal(self.gpu, at)
        covariance += effects.residual**2 * (job & other & _equal(self.of_kind, at))
        return np.asarray(covariance)


def _equal(numbers: NDArray[np.int64], at: Indices) -> NDArray[np.bool_]:
    return np.asarray(numbers[at[0]] == numbers[at[1]])


def _dots(one: Floats, two: Floats, at: Indices) -> Floats:
    return np.asarray(np.einsum("...i,...i", one[at[0]], two[at[1]]))
