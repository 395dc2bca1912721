"""What rates of all models have in common: figures of the hardware, how models differ in them, and by how much. Pure.

The matrices of `ratios.RatioModel`: which part of the shared mean each rate takes (`weights`), and how rates of one
family and one job move together (`deviations`).
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
"""Half by memory, half by arithmetic and how new it is; another GPU of the same kind adds 85 % per doubling, a little
less over a slower link (5 % for PCIe instead of NVLink)."""
_SHARED_SD = np.array([3.0, 0.25, 0.25, 0.25, 0.25, 0.3, 0.2, 0.05])
# Where tables hold no steps: those of 2020 tell how many per second are usual on a V100 (2.5, +-0.6); times 3.
_USUAL_LEVEL, _USUAL_LEVEL_SD = 3.5, 0.6
_SORT_MEAN: dict[Sort, dict[str, float]] = {
    "matrices": {"arithmetic": 0.45, "bandwidth": 0.4},
    "convolutions": {"arithmetic": 0.3, "bandwidth": 0.4},
    "recurrences": {"arithmetic": 0.35, "bandwidth": 0.4},
    "lookups": {"arithmetic": 0.05, "bandwidth": 0.85, "link_doublings": 0.07},
}
"""What a roofline expects of each sort where it differs: large matrix products are bound by arithmetic, tables by
memory and by the links between GPUs."""
_UNTOLD = {"matrices": 0.5, "convolutions": 0.5}  # what a job of an untold sort is taken for: these are most
_OFFSET_WEIGHT = math.sqrt(0.5)  # half of its variance is the generation's, half the chip's own
DOUBLINGS, LINK_DOUBLINGS = FEATURES.index("doublings"), FEATURES.index("link_doublings")


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations between families, of natural logarithms; the defaults are what physics says.

    `level`: steps/s themselves. `exponent`: of each figure of the hardware; a model that does not feel the GPU at all
    (total exponent 0 instead of 1) then lies two standard deviations out. `architecture`: kernels that suit one
    architecture and not another. `doubling`: of scaling to twice the GPUs; `gang`: what one number of GPUs has for
    itself (links, batch split). `within`: variance between jobs of one family over that between families; `sort`: the
    same of sorts of work. `residual`: what one kind has for itself in one job (another batch size or release).
    `offset`: by how much a chip lies off what its figures say, for all models.
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
        return np.array([name == HOST for name in self.architecture])

    @property
    def labels(self) -> set[str]:
        return {*self.generation, *self.architecture}

    @classmethod
    def of(cls, kinds: Sequence[InstanceKind], precisions: Sequence[Precision], sorts: Sequence[Sort | None]) -> Design:
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
    """Mean and variance of the shared part, without offsets, before any table."""
    mean, sd = SHARED_MEAN.copy(), _SHARED_SD.copy()
    if not per_step:
        mean[0], sd[0] = _USUAL_LEVEL, _USUAL_LEVEL_SD
    usual = dict(zip(FEATURES, SHARED_MEAN.tolist(), strict=True))
    means = [mean, *(np.array([_SORT_MEAN[sort].get(f, usual[f]) - usual[f] for f in FEATURES[1:]]) for sort in sorts)]
    between = spreads.sort * _feature_spreads(spreads)[1:] ** 2
    return np.concatenate(means), np.concatenate([sd**2, *(between for _ in sorts)])


def _feature_spreads(spreads: Spreads) -> Floats:
    """Power and vendor are the same for all models, which differ in what they ask of arithmetic, memory and links."""
    exponent, doubling = spreads.exponent, spreads.doubling
    return np.array([spreads.level, exponent, exponent, exponent, 0.0, 0.0, doubling, doubling])


def deviations(
    design: Design, family: NDArray[np.int64], job: NDArray[np.int64], spreads: Spreads, *, with_sort: bool
) -> Floats:
    """Covariance of what families and jobs have for themselves, and their sort if nothing is known of that."""
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
    """What each kind takes of the shared part: its features, again for its sort, and the offsets that are known."""
    reported = [_UNTOLD if sort is None else {sort: 1.0} for sort in design.sort]
    of_sorts = [
        np.array([each.get(sort, 0.0) for each in reported])[:, None] * design.features[:, 1:] for sort in sorts
    ]
    named = zip(design.generation, design.architecture, strict=True)
    rows = [[_OFFSET_WEIGHT * (name in pair) for name in offsets] for pair in named]
    return np.hstack([design.features, *of_sorts, np.array(rows).reshape(len(rows), len(offsets))])


def same(names: Sequence[str]) -> NDArray[np.bool_]:
    """Which pairs of them are equal."""
    numbers = numbered(names)
    equal: NDArray[np.bool_] = numbers[:, None] == numbers[None, :]
    return equal


def numbered(names: Sequence[str]) -> NDArray[np.int64]:
    """Each name's place in their order."""
    index = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([index[name] for name in names], dtype=np.int64)
