"""PerfBook: estimates of throughput with an interval and its provenance.

Three sources, best first: measured on this kind of hardware; scaled from a kind where the job was measured, by the
ratio of peak FP32 rates; a prior. Rates are steps per *market* second, like prices and deadlines.

Must not know: prices, availability, where the observations are stored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.model import Estimate, Job
from providers.hardware import GPUS
from providers.offer import Offer

Kind = tuple[str | None, int]  # GPU and how many; (None, 0) is any machine without one

_Z95 = 1.6449  # standard normal quantile of 95 %
_CPU_FLOPS = 1e11
# Without any measurement only the ratios between kinds mean something; the interval says so.
_PRIOR_STEPS_PER_FLOP = 1e-13
_PRIOR_SPREAD = 10.0
# V100 over K80 spans 1.60x to 9.60x across 26 Gavel jobs where FP32 peaks say 3.83x: about 2.4x both ways.
_SCALED_SPREAD = 2.4
# Simulated kinds are throttled by exactly the declared ratio; what is left is the overhead of short steps.
_SIMULATED_SPREAD = 1.1


@dataclass(frozen=True, slots=True)
class Observation:
    """A job made `steps` steps on a kind of hardware at `steps_per_s` (market seconds); known from `at_ms` on.

    Raises ValueError when a rate or a count is not positive.
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
class _Measured:
    """All observations of one job on one kind: total steps over total time, and how far single ones lie off."""

    rate: float
    steps: int
    spread: float  # half width of the 5 %..95 % interval, relative


class PerfBook:
    """Throughput of every job on every kind of hardware, as known at an instant."""

    def __init__(self, measured: dict[str, dict[Kind, _Measured]]) -> None:
        """Use `as_of`."""
        self._measured = measured

    @classmethod
    def as_of(cls, at_ms: int, observations: Iterable[Observation]) -> PerfBook:
        """A book of what was observed up to `at_ms`; the order of observations does not matter."""
        groups: dict[str, dict[Kind, list[Observation]]] = defaultdict(lambda: defaultdict(list))
        for seen in observations:
            if seen.at_ms <= at_ms:
                groups[seen.job_id][_kind(seen.gpu, seen.gpu_count)].append(seen)
        return cls({job: {kind: _aggregate(group) for kind, group in kinds.items()} for job, kinds in groups.items()})

    def estimate(self, job: Job, offer: Offer) -> Estimate:
        """Steps per market second of `job` on one machine of `offer`, with its 5th to 95th percentile."""
        return self.estimate_kind(job, offer.gpu, offer.gpu_count)

    def estimate_kind(self, job: Job, gpu: str | None, gpu_count: int) -> Estimate:
        """The same for a kind of hardware."""
        kind = _kind(gpu, gpu_count)
        known = self._measured.get(job.id, {})
        if kind in known:
            here = known[kind]
            provenance = f"measured on {_name(kind)} over {here.steps} steps"
            return Estimate(here.rate, here.rate / (1 + here.spread), here.rate * (1 + here.spread), provenance)
        if known:
            return _scaled(kind, known)
        rate = _flops(kind) * _PRIOR_STEPS_PER_FLOP
        return Estimate(
            rate,
            rate / _PRIOR_SPREAD,
            rate * _PRIOR_SPREAD,
            f"prior: not measured yet; proportional to the FP32 peak of {_name(kind)}",
        )


def _aggregate(group: list[Observation]) -> _Measured:
    steps = sum(seen.steps for seen in group)
    rate = steps / math.fsum(seen.steps / seen.steps_per_s for seen in group)
    variance = math.fsum(seen.steps * (seen.steps_per_s / rate - 1) ** 2 for seen in group) / steps
    # A few steps of a first run include warm-up, so they count for little: 3 % at best, 50 % for a single step.
    spread = min(max(0.03 + 0.47 / math.sqrt(steps), _Z95 * math.sqrt(variance)), 1.0)
    return _Measured(rate, steps, spread)


def _scaled(kind: Kind, known: dict[Kind, _Measured]) -> Estimate:
    """From the measured kind that is nearest in speed."""
    flops = _flops(kind)
    source = min(known, key=lambda k: (abs(math.log(flops / _flops(k))), -known[k].steps, _name(k)))
    measured = known[source]
    rate = measured.rate * flops / _flops(source)
    exact = _simulated(kind) and _simulated(source)
    spread = (_SIMULATED_SPREAD if exact else _SCALED_SPREAD) * (1 + measured.spread)
    return Estimate(
        rate,
        rate / spread,
        rate * spread,
        f"scaled from {_name(source)} (measured over {measured.steps} steps) by FP32 peak",
    )


def _kind(gpu: str | None, gpu_count: int) -> Kind:
    return (None, 0) if gpu is None else (gpu, gpu_count)


def _name(kind: Kind) -> str:
    gpu, count = kind
    if gpu is None:
        return "CPU"
    return gpu if count == 1 else f"{count} x {gpu}"


def _flops(kind: Kind) -> float:
    gpu, count = kind
    return _CPU_FLOPS if gpu is None else GPUS[gpu].fp32_flops * count


def _simulated(kind: Kind) -> bool:
    return kind[0] is not None and GPUS[kind[0]].simulated
