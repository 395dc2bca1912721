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

from orchestrator.perf.pairings import LEAST_VARIANCE, Effects, Layout, PairCell, Pairing
from orchestrator.perf.posterior import Floats, Posterior

# Two jobs that take turns on a GPU have half of it each; two that never wait for each other, all of it.
_USUAL_LOG, _USUAL_SD = math.log(0.65), 0.3
_STRAIN_DOF = 6.0  # a strain that is not measured is known about as well as from so many measurements
_STRAIN_ROUNDS = 3
_SPREAD_DOF = 2.0


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
        layout = Layout.of(where, self.gpus)
        mean = layout.shared @ self.mean + np.array([each.log_alone for each in where])
        fixed, strained = layout.fixed(self.effects, self.covariance), layout.strained(self.effects)
        strain = self._strain_of(layout)
        if not cells:
            covariance = fixed + strained * np.outer(strain, strain)
            return Posterior(mean, covariance * self.calibration**2, self.dof)
        noise = np.array([cell.variance + LEAST_VARIANCE for cell in cells])
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
        layout = Layout.of([cell.of for cell in cells], names)
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ wider.mean
        noise = np.diag([cell.variance + LEAST_VARIANCE for cell in cells])
        fixed, strained = layout.fixed(self.effects, wider.covariance) + noise, layout.strained(self.effects)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, wider._strain_of(layout), 0)
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
        layout = Layout.of([cell.of for cell in cells], self.gpus)
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ self.mean
        noise = np.diag([cell.variance + LEAST_VARIANCE for cell in cells])
        fixed, strained = layout.fixed(self.effects, self.covariance) + noise, layout.strained(self.effects)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, self._strain_of(layout), 0)
        size = np.linalg.slogdet(fixed + strained * np.outer(strain, strain))[1]
        return float(off @ inverse @ off + size) / 2

    def _strain_of(self, layout: Layout) -> Floats:
        """(n,): of the GPU of each pairing, before any evidence."""
        known = dict(zip(self.gpus, self.strain, strict=True))
        return np.array([known.get(name, 1.0) for name in layout.names])

    def _over(self, names: Sequence[str]) -> ColocationModel:
        """The same with more GPUs, of which nothing is known."""
        mean, covariance = np.zeros(3 + 3 * len(names)), np.diag([0.0] * 3 + [*self.effects.of_one_gpu] * len(names))
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
