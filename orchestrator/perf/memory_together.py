"""Whether two jobs fit into the memory of the same GPUs, with a probability. Pure.

Memory adds up: two jobs fit if their needs together do not exceed the GPU's memory. A need is known from a profile or
learned as the sum of two normal parts, one of the job's family and one of the job. Each pair that fitted, or did not,
is a bound on the sum of two needs (logistic regression with a normal prior; Laplace's approximation).

A pair that was tried on a kind is not predicted: if it did not fit the last time, it does not fit; otherwise the
probability is the fraction of all tries there that fitted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from orchestrator.perf.kinds import InstanceKind
from orchestrator.perf.posterior import Floats
from providers.hardware import GPUS

_NORMAL = NormalDist()
# GB of an unknown training job, between families, and between jobs of one family: broad expectations.
_USUAL_GB, _FAMILY_SD_GB, _JOB_SD_GB = 4.0, 2.5, 1.5
_PROFILE_SD = 0.15  # a profile misses the memory of compilers and allocators
_STEP_GB = 0.4  # how sharp the limit is: allocators keep some memory, and drivers take some
_LOGISTIC_SD = _STEP_GB * math.pi / math.sqrt(3)
_MOST_ROUNDS, _SETTLED_GB = 50, 1e-6


@dataclass(frozen=True, slots=True)
class Fitted:
    """Two jobs fitted (`fits`), or did not, into the memory of each GPU of a kind, as recorded at `at_ms`."""

    job: str
    family: str
    other: str
    other_family: str
    kind: InstanceKind
    fits: bool
    at_ms: int = 0


class MemoryTogether:
    """The evidence about the memory of jobs. `profiled`: bytes that one GPU needs for a job, by job and kind."""

    def __init__(self, rows: Sequence[Fitted], profiled: Mapping[tuple[str, InstanceKind], int]) -> None:
        """Raises KeyError for a GPU that is not in the hardware table."""
        # Repeated tries of one pair give no new information about other pairs.
        self._rows = sorted({replace(row, at_ms=0) for row in rows}, key=repr)
        self._profiled = profiled
        self._named = {name for row in self._rows for name in (row.job, row.other)}
        tries: dict[tuple[frozenset[str], InstanceKind], list[Fitted]] = defaultdict(list)
        for row in rows:
            tries[frozenset((row.job, row.other)), row.kind].append(row)
        self._known = {key: _tried(mine) for key, mine in tries.items()}
        names = [(row.job, row.family) for row in self._rows] + [(row.other, row.other_family) for row in self._rows]
        labels = [*(("family", family) for _, family in names), *(("job", job) for job, _ in names)]
        self._column = {label: number for number, label in enumerate(sorted(set(labels)))}
        self._prior = np.array([(_FAMILY_SD_GB if sort == "family" else _JOB_SD_GB) ** 2 for sort, _ in self._column])
        self._mean, self._covariance = self._learned()

    def probability(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        kind: InstanceKind,
        profiled: tuple[int | None, int | None] | None = None,
    ) -> float:
        """The probability that two jobs, each (job, family), fit together on a kind. `profiled`: the bytes that one GPU
        needs for each by its profile (None: not profiled), if they differ from those given at the start."""
        known = self._known.get((frozenset((first[0], second[0])), kind))
        if known is not None:
            return known
        weights, room, variance = self._need(first, second, kind, profiled or self._needs(first[0], second[0], kind))
        extra = float(weights @ self._covariance @ weights)
        left = room - float(weights @ self._mean)
        return _NORMAL.cdf(left / math.sqrt(variance + extra + _LOGISTIC_SD**2))

    def source(self, first: str, second: str, kind: InstanceKind, profiled: tuple[int | None, int | None]) -> str:
        """The source of the probability in words; starts with 'unknown' if a need is a guess. `profiled` as above."""
        if (frozenset((first, second)), kind) in self._known:
            return "tried together"
        both = zip((first, second), profiled, strict=True)
        unknown = {job for job, need in both if need is None and job not in self._named}
        if unknown == {first, second}:
            return "unknown: neither job was profiled or has shared a GPU"
        if unknown:
            return "unknown: one of the jobs was not profiled and has not shared a GPU"
        if None not in profiled:
            return "by the profiles of both jobs"
        return "predicted from pairs that fitted and pairs that did not"

    def _needs(self, first: str, second: str, kind: InstanceKind) -> tuple[int | None, int | None]:
        return self._profiled.get((first, kind)), self._profiled.get((second, kind))

    def _need(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        kind: InstanceKind,
        profiles: tuple[int | None, int | None],
    ) -> tuple[Floats, float, float]:
        """(weights of the learned parts, GB left beside the known parts, variance of the known parts) of a pair."""
        weights, variance = np.zeros(len(self._column)), 0.0
        room = GPUS[str(kind[0])].memory_bytes / 1e9
        for (job, family), profiled in zip((first, second), profiles, strict=True):
            if profiled is not None:
                room -= profiled / 1e9
                variance += (_PROFILE_SD * profiled / 1e9) ** 2
                continue
            room -= _USUAL_GB
            for label, sd in ((("family", family), _FAMILY_SD_GB), (("job", job), _JOB_SD_GB)):
                if label in self._column:
                    weights[self._column[label]] += 1
                else:
                    variance += sd**2
        return weights, room, variance

    def _learned(self) -> tuple[Floats, Floats]:
        """Mean and covariance of the parts: Newton's method for the most probable ones, with a line search."""
        needs = [
            self._need((r.job, r.family), (r.other, r.other_family), r.kind, self._needs(r.job, r.other, r.kind))
            for r in self._rows
        ]
        weights = np.array([each[0] for each in needs]).reshape(len(needs), len(self._column))
        room, sign = np.array([each[1] for each in needs]), np.array([1.0 if row.fits else -1.0 for row in self._rows])
        step = np.array([math.sqrt(_STEP_GB**2 + 3 * each[2] / math.pi**2) for each in needs])
        mean, precision = np.zeros(len(self._column)), np.diag(1 / self._prior)

        def loss(at: Floats) -> float:
            return float(np.logaddexp(0, -sign * (room - weights @ at) / step).sum() + at @ precision @ at / 2)

        covariance = np.diag(self._prior)
        for _ in range(_MOST_ROUNDS):
            wrong = 1 / (1 + np.exp(np.clip(sign * (room - weights @ mean) / step, -500, 500)))
            slope = weights.T @ (sign * wrong / step) + precision @ mean
            curvature = precision + (weights.T * (wrong * (1 - wrong) / step**2)) @ weights
            covariance = np.linalg.inv(curvature)
            change, part = covariance @ slope, 1.0
            while loss(mean - part * change) > loss(mean) and part > 1e-6:
                part /= 2
            mean = mean - part * change
            if np.abs(change).max(initial=0.0) < _SETTLED_GB:
                break
        return mean, covariance


def _tried(rows: Sequence[Fitted]) -> float:
    """The probability that a pair fits where it was tried. Among simultaneous tries, a misfit counts as the last."""
    last_ms = max(row.at_ms for row in rows)
    if not all(row.fits for row in rows if row.at_ms == last_ms):
        return 0.0
    return sum(row.fits for row in rows) / len(rows)
