"""Measured rates of one job on one kind of hardware, combined into one figure despite warm-up and hiccups. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.perf.kinds import InstanceKind, kind_of

Z95 = 1.6449  # standard normal quantile of 95 %
# The first report includes compiling, caching and connecting; it is dropped once two later ones can replace it.
_ENOUGH_WITHOUT_FIRST = 3
# Reports further from the median than three times its scatter, and than a tenth, show a noisy neighbour or a stall.
_ENOUGH_FOR_OUTLIERS = 5
_OUTLIER_SCATTERS = 3 * 1.4826
_OUTLIER_LEAST = 0.10

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observation:
    """A job made `steps` steps on a kind of hardware at `steps_per_s` (market seconds), recorded at `at_ms`.

    Raises ValueError if the rate or the count is not positive.
    """

    job_id: str
    gpu: str | None
    gpu_count: int
    steps_per_s: float
    steps: int
    at_ms: int

    def __post_init__(self) -> None:
        if not (self.steps_per_s > 0 and math.isfinite(self.steps_per_s)) or self.steps <= 0:
            raise ValueError(f"an observation needs a positive rate and steps: {self}")


@dataclass(frozen=True, slots=True)
class Measured:
    """Total steps over total time; `spread` is the relative half width of the 90 % interval."""

    rate: float
    steps: int
    spread: float

    @property
    def log_variance(self) -> float:
        """The variance of the logarithm of the rate."""
        return (math.log1p(self.spread) / Z95) ** 2


class Series:
    """The observations of one job on one kind of hardware, without its first report if others can replace it: `rates`
    and `steps`, in no particular order. Arrays, because each decision combines many jobs of one program."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        """At least one observation."""
        mine = sorted(observations, key=lambda seen: (seen.at_ms, seen.steps, seen.steps_per_s))
        if len(mine) >= _ENOUGH_WITHOUT_FIRST and mine[0].at_ms < mine[1].at_ms:
            del mine[0]
        self.rates: Floats = np.array([seen.steps_per_s for seen in mine])
        self.steps: Floats = np.array([float(seen.steps) for seen in mine])

    @cached_property
    def alone(self) -> Measured:
        """These observations combined into one figure."""
        return combined([self])


def by_kind(observations: Iterable[Observation]) -> Mapping[InstanceKind, Series]:
    """The observations of one job, by kind of hardware."""
    groups: dict[InstanceKind, list[Observation]] = defaultdict(list)
    for seen in observations:
        groups[kind_of(seen.gpu, seen.gpu_count)].append(seen)
    return {kind: Series(group) for kind, group in groups.items()}


def combined(jobs: Sequence[Series]) -> Measured:
    """At least one job's observations on one kind of hardware as one figure. Their order does not matter."""
    rates = np.concatenate([each.rates for each in jobs])
    steps = np.concatenate([each.steps for each in jobs])
    if len(rates) >= _ENOUGH_FOR_OUTLIERS:
        logs = np.log(rates)
        from_middle = np.abs(logs - _median(logs, steps))
        counted = from_middle <= max(_OUTLIER_SCATTERS * _median(from_middle, steps), _OUTLIER_LEAST)
        rates, steps = rates[counted], steps[counted]
    total = math.fsum(steps.tolist())  # exact sums, so the order does not matter
    rate = total / math.fsum((steps / rates).tolist())
    variance = math.fsum((steps * (rates / rate - 1) ** 2).tolist()) / total
    # at least 3 %; 50 % for a single step.
    return Measured(rate, int(total), min(max(0.03 + 0.47 / math.sqrt(total), Z95 * math.sqrt(variance)), 1.0))


def _median(values: Floats, weights: Floats) -> float:
    """The weighted median; the lower of two."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(passed, passed[-1] / 2))]])
