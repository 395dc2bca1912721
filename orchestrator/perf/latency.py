"""Latencies: what starting a machine takes at each place, or handing over each job, learned from observations. Pure.

The logarithm of one such time is what is usual at the provider, plus what the place has for itself, plus chance:

    log seconds = provider + place + this once        three normal distributions, the first two unknown

Before anything was seen the provider's figure is a prior, good to a factor. Each start at a place moves what is held of
that place, the more the more there were of them, and a little of all others. Scatter from one start to the next is
learned as well, from starts at the same place (a scaled inverse chi-squared prior; Gelman et al., Bayesian Data
Analysis, chapters 2 and 5).
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
_ONCE_SD = 0.2  # from one start to the next at the same place,
_ONCE_WEIGHT = 4.0  # which weighs as so many observed ones
_LEAST_S = 1e-3


@dataclass(frozen=True, slots=True)
class LatencyPrior:
    """What is usual at a provider before anything was seen there: `seconds`, good to `factor` either way at 90 %.
    Places differ from each other by a factor `between` (90 %)."""

    seconds: float
    factor: float
    source: str
    between: float = 1.5  # images that are cached, slower hosts

    @property
    def log_sd(self) -> float:
        return math.log(self.factor) / _Z95

    @property
    def variance_between(self) -> float:
        return (math.log(self.between) / _Z95) ** 2


@dataclass(frozen=True, slots=True)
class Latencies(Generic[P]):
    """The next one at a provider: `usual` where nothing was observed, `at` at the places where something was. The value
    is the mean, low and high are the 5th and 95th percentile, market seconds."""

    usual: Estimate
    at: Mapping[P, Estimate]


def learned(prior: LatencyPrior, observed: Iterable[tuple[P, float]]) -> Latencies[P]:
    """What is held after the observations: (place, market seconds), in any order."""
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
        heard = places / (places + once / len(group))  # how much the place's own figures count
        here = mean + heard * (means[place] - mean)
        variance = (1 - heard) ** 2 * known_to + (1 - heard) * places + once
        at[place] = _estimate(here, variance, f"{len(group)} observed there, {source}")
    return Latencies(_estimate(mean, known_to + places + once, source), at)


def _estimate(mean: float, variance: float, source: str) -> Estimate:
    """Of a log-normal quantity."""
    spread = _Z95 * math.sqrt(variance)
    return Estimate(math.exp(mean + variance / 2), math.exp(mean - spread), math.exp(mean + spread), source)
