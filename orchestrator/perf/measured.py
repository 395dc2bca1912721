"""Measured rates of one job on one kind of hardware, combined into one figure despite warm-up and hiccups. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.6449  # standard normal quantile of 95 %
# The first report includes compiling, caching and connecting; it is dropped once two later ones can replace it.
_ENOUGH_WITHOUT_FIRST = 3
# Reports further from the median than three times its scatter, and than a tenth, show a noisy neighbour or a stall.
_ENOUGH_FOR_OUTLIERS = 5
_OUTLIER_SCATTERS = 3 * 1.4826
_OUTLIER_LEAST = 0.10


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


def aggregate(group: Sequence[Observation]) -> Measured:
    """Combine at least one observation into one figure. Their order does not matter."""
    counted = _without_outliers(_without_warm_up(group))
    steps = sum(seen.steps for seen in counted)
    rate = steps / math.fsum(seen.steps / seen.steps_per_s for seen in counted)
    variance = math.fsum(seen.steps * (seen.steps_per_s / rate - 1) ** 2 for seen in counted) / steps
    # at least 3 %; 50 % for a single step.
    return Measured(rate, steps, min(max(0.03 + 0.47 / math.sqrt(steps), Z95 * math.sqrt(variance)), 1.0))


def _without_warm_up(group: Sequence[Observation]) -> list[Observation]:
    """Without the first report of each job."""
    kept: list[Observation] = []
    for job in sorted({seen.job_id for seen in group}):
        mine = sorted(
            (seen for seen in group if seen.job_id == job), key=lambda seen: (seen.at_ms, seen.steps, seen.steps_per_s)
        )
        kept += mine[1:] if len(mine) >= _ENOUGH_WITHOUT_FIRST and mine[0].at_ms < mine[1].at_ms else mine
    return kept


def _without_outliers(group: list[Observation]) -> list[Observation]:
    if len(group) < _ENOUGH_FOR_OUTLIERS:
        return group
    middle = _median([(math.log(seen.steps_per_s), seen.steps) for seen in group])
    scatter = _median([(abs(math.log(seen.steps_per_s) - middle), seen.steps) for seen in group])
    most = max(_OUTLIER_SCATTERS * scatter, _OUTLIER_LEAST)
    return [seen for seen in group if abs(math.log(seen.steps_per_s) - middle) <= most]


def _median(weighted: list[tuple[float, int]]) -> float:
    """The weighted median; the lower of two."""
    half = sum(weight for _, weight in weighted) / 2
    passed = 0
    for value, weight in sorted(weighted):
        passed += weight
        if passed >= half:
            return value
    raise ValueError("there is no median of no values")
