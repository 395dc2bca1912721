"""Structure: the common part of all models' rates (figures of the hardware), and how much models differ. Pure.

The matrices of `ratios.RatioModel`: the shares of each rate in the shared mean (`weights`), and the covariance of rates
of one family and one job (`deviations`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.kinds import FEATURES, HOST, InstanceKind, facts
from orchestrator.perf.posterior import Floats
from orchestrator.perf.work import Sort
from providers.hardware import Precision

SHARED_MEAN = np.array([2.0, 0.25, 0.25, 0.5, 0.0, 0.0, 0.85 * math.log(2), 0.02])
"""Half from memory, half from arithmetic and age; doubling the GPUs adds 85 %, a little less over a slower link (5 %
for PCIe instead of NVLink)."""
_SHARED_SD = np.array([3.0, 0.25, 0.25, 0.25, 0.25, 0.3, 0.2, 0.05])
# For tables without steps: the tables of 2020 give the usual level per second on a V100 (2.5, +-0.6), times 3.
_USUAL_LEVEL, _USUAL_LEVEL_SD = 3.5, 0.6
_SORT_MEAN: dict[Sort, dict[str, float]] = {
    "matrices": {"arithmetic": 0.45, "bandwidth": 0.4},
    "convolutions": {"arithmetic": 0.3, "bandwidth": 0.4},
    "recurrences": {"arithmetic": 0.35, "bandwidth": 0.4},
    "lookups": {"arithmetic": 0.05, "bandwidth": 0.85, "link_doublings": 0.07},
}
"""The roofline's expectation for each sort, where it differs: large matrix products are limited by arithmetic, lookups
by memory and by the links between GPUs."""
_UNKNOWN_SORT = {"matrices": 0.5, "convolutions": 0.5}  # assumed for a job of unknown sort: the most common
_OFFSET_WEIGHT = math.sqrt(0.5)  # half of its variance belongs to the generation, half to the chip
DOUBLINGS, LINK_DOUBLINGS = FEATURES.index("doublings"), FEATURES.index("link_doublings")


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations between families, of natural logarithms; the defaults are physical expectations.

    `level`: of steps/s themselves. `exponent`: of each figure of the hardware; a model whose speed does not depend on
    the GPU (total exponent 0 instead of 1) is then two standard deviations out. `architecture`: kernels that suit one
    architecture and not another. `doubling`: of scaling to twice the GPUs; `gang`: specific to one number of GPUs
    (links, batch split). `within`: variance between jobs of one family relative to that between families; `sort`: the
    same for sorts of work. `residual`: specific to one kind in one job (another batch size or release). `offset`: how
    far a chip deviates from what its figures predict, for all models.
    """

    level: float = 1.5
    exponent: float = 0.3
    architecture: float = 0.3
    doubling: float = 0.2
    gang: float = 0.2
    within: float = 0.3
    sort: float = 0.5
    residual: float = 0.05
    offset: float = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """The hardware of n rates as columns of length n: `features` is n x len(FEATURES), `same_architecture` and
    `same_kind` are n x n; `shift` and `own` are a known log speed and a variance of its own per rate."""

    features: Floats
    generation: list[str]
    architecture: list[str]
    sort: list[Sort | None]
    shift: Floats
    own: Floats
    same_architecture: Floats
    same_kind: NDArray[np.bool_]

    @property
    def on_host(self) -> NDArray[np.bool_]:
        """Whether each rate is on a host's processor."""
        return np.array([name == HOST for name in self.architecture])

    @property
    def labels(self) -> set[str]:
        """The names of all generations and architectures."""
        return {*self.generation, *self.architecture}

    @classmethod
    def of(cls, kinds: Sequence[InstanceKind], precisions: Sequence[Precision], sorts: Sequence[Sort | None]) -> Design:
        """The design of rates on `kinds`, one precision and sort each. Raises KeyError for an unknown GPU."""
        found = [facts(kind, precision) for kind, precision in zip(kinds, precisions, strict=True)]
        generation, architecture = [each.generation for each in found], [each.architecture for each in found]
        return cls(
            np.array([each.features for each in found]),
            generation,
            architecture,
            list(sorts),
            np.array([each.shift for each in found]),
            np.array([each.own_variance for each in found]),
            (same(generation) + same(architecture).astype(np.float64)) / 2,
            same([f"{gpu}:{count}" for gpu, count in kinds]),
        )


def blank(spreads: Spreads, sorts: Sequence[Sort], per_step: bool) -> tuple[Floats, Floats]:
    """The mean and variance of the shared part, without offsets, before any table."""
    mean, sd = SHARED_MEAN.copy(), _SHARED_SD.copy()
    if not per_step:
        mean[0], sd[0] = _USUAL_LEVEL, _USUAL_LEVEL_SD
    usual = dict(zip(FEATURES, SHARED_MEAN.tolist(), strict=True))
    means = [mean, *(np.array([_SORT_MEAN[sort].get(f, usual[f]) - usual[f] for f in FEATURES[1:]]) for sort in sorts)]
    between = spreads.sort * _feature_spreads(spreads)[1:] ** 2
    return np.concatenate(means), np.concatenate([sd**2, *(between for _ in sorts)])


def _feature_spreads(spreads: Spreads) -> Floats:
    """The spread of each feature. Power and vendor affect all models alike, so their spread is 0."""
    exponent, doubling = spreads.exponent, spreads.doubling
    return np.array([spreads.level, exponent, exponent, exponent, 0.0, 0.0, doubling, doubling])


def deviations(
    design: Design, family: NDArray[np.int64], job: NDArray[np.int64], spreads: Spreads, *, with_sort: bool
) -> Floats:
    """The covariance of the parts specific to families and jobs, and of the part of their sort if the sort is
    unknown."""
    weighted = design.features * _feature_spreads(spreads)
    shape = weighted @ weighted.T + spreads.architecture**2 * design.same_architecture
    same_family, same_job = family[:, None] == family[None, :], job[:, None] == job[None, :]
    own = np.where(design.features[:, DOUBLINGS] > 0, spreads.gang**2, 0.0) + design.own
    own += np.where(design.on_host, 0.0, spreads.residual**2)
    covariance: Floats = shape * same_family + spreads.within * shape * same_job
    if with_sort:
        covariance += spreads.sort * (weighted[:, 1:] @ weighted[:, 1:].T) * same_family
    covariance += own[:, None] * (same_job & design.same_kind)
    return covariance


def weights(design: Design, sorts: Sequence[Sort], offsets: Sequence[str]) -> Floats:
    """The share of each rate in the shared part: its features, again for its sort, and the known offsets."""
    count, column = len(design.sort), {name: index for index, name in enumerate(offsets)}
    reported = [_UNKNOWN_SORT if sort is None else {sort: 1.0} for sort in design.sort]
    shares = np.array([[each.get(sort, 0.0) for sort in sorts] for each in reported]).reshape(count, len(sorts))
    of_sorts = (shares[:, :, None] * design.features[:, None, 1:]).reshape(count, -1)
    of_names = np.zeros((count, len(offsets)))
    for row, pair in enumerate(zip(design.generation, design.architecture, strict=True)):
        of_names[row, [column[name] for name in pair if name in column]] = _OFFSET_WEIGHT
    return np.concatenate([design.features, of_sorts, of_names], axis=1)


def same(names: Sequence[str]) -> NDArray[np.bool_]:
    """An n x n matrix of which pairs of names are equal."""
    numbers = numbered(names)
    equal: NDArray[np.bool_] = numbers[:, None] == numbers[None, :]
    return equal


def numbered(names: Sequence[str]) -> NDArray[np.int64]:
    """The index of each name in the sorted set of names."""
    index = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([index[name] for name in names], dtype=np.int64)
