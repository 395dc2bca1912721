"""Latencies: the times to start a machine at each place or to hand over each job, learned from observations.

The logarithm of one such time is the sum of the provider's usual value, a deviation of the place, and chance:

    log seconds = provider + place + chance           three normal distributions, the first two unknown

Before any observation the provider's figure is a prior with a given uncertainty factor. Each start at a place changes
the estimate of that place, more with each observation, and slightly those of all others. The variation between starts
at the same place is learned as well (a scaled inverse chi-squared prior; Gelman et al., Bayesian Data Analysis,
chapters 2 and 5). Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.model import Estimate

P = TypeVar("P", bound=Hashable)
_Z95 = 1.6449
_ONCE_SD = 0.2  # between starts at the same place,
_ONCE_WEIGHT = 4.0  # with the weight of this many observations
_LEAST_S = 1e-3


@dataclass(frozen=True, slots=True)
class LatencyPrior:
    """The usual time at a provider before any observation: `seconds`, within `factor` either way at 90 %. Places differ
    from each other by a factor `between` (90 %)."""

    seconds: float
    factor: float
    source: str
    between: float = 1.5  # cached images, slower hosts

    @property
    def log_sd(self) -> float:
        """The standard deviation of the logarithm of `seconds`."""
        return math.log(self.factor) / _Z95

    @property
    def variance_between(self) -> float:
        """The variance between places of the logarithm."""
        return (math.log(self.between) / _Z95) ** 2


@dataclass(frozen=True, slots=True)
class Latencies(Generic[P]):
    """The estimate of the next such time at a provider: `usual` for places without observations, `at` for places with
    observations. Values are means; low and high are the 5th and 95th percentile; in market seconds."""

    usual: Estimate
    at: Mapping[P, Estimate]


def learned(prior: LatencyPrior, observed: Iterable[tuple[P, float]]) -> Latencies[P]:
    """The estimates after the observations: (place, market seconds) in any order."""
    groups: dict[P, list[float]] = defaultdict(list)
    for place, seconds in observed:
        groups[place].append(math.log(max(seconds, _LEAST_S)))
    means = {place: math.fsum(group) / len(group) for place, group in groups.items()}
    scatter = math.fsum((each - means[place]) ** 2 for place, group in groups.items() for each in group)
    degrees = sum(len(group) - 1 for group in groups.values())
    once = (_ONCE_WEIGHT * _ONCE_SD**2 + scatter) / (_ONCE_WEIGHT + degrees)  # variances from here on
    places = prior.variance_between
    precision, pull = prior.log_sd**-2, prior.log_sd**-2 * math.log(max(prior.seconds, _LEAST_S))
    for place, group in groups.items():
        weight = 1 / (places + once / len(group))
        precision, pull = precision + weight, pull + weight * means[place]
    mean, known_to = pull / precision, 1 / precision
    count = sum(map(len, groups.values()))
    source = f"{count} observed at its provider" if count else f"prior: {prior.source}"
    at = {}
    for place, group in groups.items():
        own_weight = places / (places + once / len(group))  # the weight of the place's own figures
        here = mean + own_weight * (means[place] - mean)
        variance = (1 - own_weight) ** 2 * known_to + (1 - own_weight) * places + once
        at[place] = _estimate(here, variance, f"{len(group)} observed there, {source}")
    return Latencies(_estimate(mean, known_to + places + once, source), at)


def _estimate(mean: float, variance: float, source: str) -> Estimate:
    """The estimate of a log-normal quantity."""
    spread = _Z95 * math.sqrt(variance)
    return Estimate(math.exp(mean + variance / 2), math.exp(mean - spread), math.exp(mean + spread), source)
