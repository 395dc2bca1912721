"""Colocation: how fast a job is beside another one on the same GPUs of one machine. Pure.

A job's rate beside another is its rate alone times a slowdown, whose logarithm is a sum of normal effects:

    log slowdown = (shared + GPU) . (1, x, x of the other)
                   + strain of the GPU . (sensitivity + demand of the other + pair of families + pair of jobs)

x is the logarithm of the rate alone: long steps are slowed down less. Sensitivity and demand each belong to a family of
models and to a job, and are partly the same on all GPUs and partly specific to one. `strain` says how much more jobs
differ on one GPU than on another; it is learned from the leave-one-out errors. So all measurements, on any GPUs, are
conditioned on at once, as in `ratios.RatioModel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.pairings import LEAST_VARIANCE, Effects, Indices, Layout, PairCell, Pairing
from orchestrator.perf.posterior import Floats, Posterior, student_quantile

# Two jobs that take turns on a GPU get half of it each; two that never wait for each other get all of it.
_USUAL_LOG, _USUAL_SD = math.log(0.65), 0.3
_STRAIN_DOF = 6.0  # an unmeasured strain is known about as well as from this many measurements
_STRAIN_ROUNDS = 3
_SPREAD_DOF = 2.0
_BLOCK = 1000  # this many pairings are predicted at once


@dataclass(frozen=True, slots=True, eq=False)
class ColocationModel:
    """Fitted `effects`, and the tables' estimate of the shared part: `mean` (3 + 3 gpus,) and `covariance` of level and
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

    def given(self, evidence: Iterable[PairCell]) -> Conditioned:
        """The model given measurements of any pairings, in any order."""
        cells = sorted(evidence, key=repr)  # sums are the same in any order
        numbers: dict[str, int] = {}
        layout = Layout.of([cell.of for cell in cells], self.gpus, numbers)
        off = np.array([cell.log_rate for cell in cells]) - layout.log_alone - layout.shared @ self.mean
        fixed, strained = self._prior(layout, cells)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, self.strain_of(layout.names))
        return Conditioned(self, layout, numbers, dict(zip(layout.names, strain, strict=True)), inverse, off)

    def posterior(self, wanted: Sequence[Pairing], evidence: Iterable[PairCell] = ()) -> Posterior:
        """The logarithms of the rates of the `wanted` pairings together, given measurements of any pairings."""
        return self.given(evidence).posterior(wanted)

    def learn(self, table: Iterable[PairCell]) -> ColocationModel:
        """The model after a table of other people's jobs: it keeps their information about all jobs and about GPUs. The
        order of cells does not matter."""
        cells = sorted(table, key=repr)
        names = sorted({*self.gpus, *(str(cell.of.kind[0]) for cell in cells)})
        wider = self._over(names)
        layout = Layout.of([cell.of for cell in cells], names, {})
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ wider.mean
        fixed, strained = wider._prior(layout, cells)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, wider.strain_of(layout.names))
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
        layout = Layout.of([cell.of for cell in cells], self.gpus, {})
        off = np.array([cell.log_rate - cell.of.log_alone for cell in cells]) - layout.shared @ self.mean
        fixed, strained = self._prior(layout, cells)
        strain, inverse = _strained(fixed, strained, off, layout.gpu, self.strain_of(layout.names))
        size = np.linalg.slogdet(fixed + strained * np.outer(strain, strain))[1]
        return float(off @ inverse @ off + size) / 2

    def strain_of(self, names: Sequence[str]) -> Floats:
        """(n,): the strain of the GPU of each pairing, before any evidence."""
        known = dict(zip(self.gpus, self.strain, strict=True))
        return np.array([known.get(name, 1.0) for name in names])

    def _prior(self, layout: Layout, cells: Sequence[PairCell]) -> tuple[Floats, Floats]:
        """The covariance of cells: the part that no strain changes, and the rest for a strain of 1."""
        every = np.arange(len(cells))
        noise = np.diag([cell.variance + LEAST_VARIANCE for cell in cells])
        fixed = layout.fixed(self.effects, self.covariance, (every[:, None], every))
        return fixed + noise.reshape(fixed.shape), layout.strained(self.effects, (every[:, None], every))

    def _over(self, names: Sequence[str]) -> ColocationModel:
        """The same model with additional, unknown GPUs."""
        mean, covariance = np.zeros(3 + 3 * len(names)), np.diag([0.0] * 3 + [*self.effects.of_one_gpu] * len(names))
        at = np.array([0, 1, 2, *(3 + 3 * names.index(name) + i for name in self.gpus for i in range(3))])
        mean[at] = self.mean
        covariance[np.ix_(at, at)] = self.covariance
        known = dict(zip(self.gpus, self.strain, strict=True))
        strain = tuple(known.get(name, 1.0) for name in names)
        return replace(self, gpus=tuple(names), strain=strain, mean=mean, covariance=covariance)


@dataclass(frozen=True, slots=True)
class Marginals:
    """Logarithms of rates, each separately: `mean` (n,), and half the width of the 90 % interval, `spread` (n,)."""

    mean: Floats
    spread: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """A `model` given rates of the pairings `measured`, which deviate from it by `off`. `numbers` are the numbers of
    their names; `strain`, by GPU, was learned from them; `inverse` is the inverse of their covariance, computed once
    for all later requests."""

    model: ColocationModel
    measured: Layout
    numbers: Mapping[str, int]
    strain: Mapping[str, float]
    inverse: Floats
    off: Floats

    def posterior(self, wanted: Sequence[Pairing]) -> Posterior:
        """The logarithms of the rates of these pairings together: memory grows with the square of their number."""
        here = np.arange(len(wanted))
        mean, prior, gain, across = self._conditioned(wanted, (here[:, None], here))
        scale = prior - gain @ across.T
        return Posterior(mean, (scale + scale.T) / 2 * self.model.calibration**2, self._dof)

    def marginals(self, wanted: Sequence[Pairing]) -> Marginals:
        """The logarithms of the rates of these pairings, each separately: memory does not grow with their number."""
        means, spreads = [np.zeros(0)], [np.zeros(0)]
        quantile = self.model.calibration * student_quantile(0.95, self._dof)
        for start in range(0, len(wanted), _BLOCK):
            block = wanted[start : start + _BLOCK]
            here = np.arange(len(block))
            mean, prior, gain, across = self._conditioned(block, (here, here))
            means.append(mean)
            spreads.append(quantile * np.sqrt(np.maximum(prior - (gain * across).sum(axis=1), 0.0)))
        return Marginals(np.concatenate(means), np.concatenate(spreads))

    @property
    def _dof(self) -> float:
        return self.model.dof + len(self.off)

    def _conditioned(self, wanted: Sequence[Pairing], at: Indices) -> tuple[Floats, Floats, Floats, Floats]:
        """(means, variances `at` before the measurements, gain, covariance with the measured ones) of pairings."""
        n, model = len(wanted), self.model
        layout = Layout.of(wanted, model.gpus, dict(self.numbers)).then(self.measured)
        strain = model.strain_of(layout.names)
        strain = np.array([self.strain.get(name, before) for name, before in zip(layout.names, strain, strict=True)])

        def covariance(of: Indices) -> Floats:
            strained = layout.strained(model.effects, of) * strain[of[0]] * strain[of[1]]
            return layout.fixed(model.effects, model.covariance, of) + strained

        across = covariance((np.arange(n)[:, None], np.arange(n, n + len(self.off))))
        gain = across @ self.inverse
        mean = layout.shared[:n] @ model.mean + layout.log_alone[:n] + gain @ self.off
        return mean, covariance(at), gain, across


def untaught(effects: Effects) -> ColocationModel:
    """A model before any table."""
    variance = np.array([_USUAL_SD**2, effects.slope**2, effects.slope**2])
    return ColocationModel(effects, (), (), np.array([_USUAL_LOG, 0.0, 0.0]), np.diag(variance), 0)


def _strained(
    fixed: Floats, strained: Floats, off: Floats, gpu: NDArray[np.int64], start: Floats
) -> tuple[Floats, Floats]:
    """(strain of every measured pairing, inverse of their covariance). A strain is right if the leave-one-out errors
    are as large as expected."""
    strain = start
    for _ in range(_STRAIN_ROUNDS):
        inverse = _inverse(fixed + strained * np.outer(strain, strain))
        squares = (inverse @ off) ** 2 / np.diag(inverse)  # Rasmussen and Williams 2006, 5.12
        strain = strain.copy()
        for number in np.unique(gpu):
            here = gpu == number
            then, now = float(start[here][0]), float(strain[here][0])
            variance = (_STRAIN_DOF * then**2 + now**2 * squares[here].sum()) / (_STRAIN_DOF + here.sum())
            strain[here] = math.sqrt(variance)
    return strain, _inverse(fixed + strained * np.outer(strain, strain))


def _inverse(covariance: Floats) -> Floats:
    return np.asarray(np.linalg.inv(covariance), dtype=np.float64)
