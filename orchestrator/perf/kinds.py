"""Kinds of hardware as the throughput model sees them: a few logarithms of data-sheet figures. Pure.

Must not know: jobs, prices, observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from providers.hardware import GPUS

Kind = tuple[str | None, int]  # GPU and how many; (None, 0) is any machine without one

FEATURES = ("level", "fp32", "fp16", "bandwidth", "doublings")
"""1, then log FP32 and FP16 peaks and memory bandwidth over the V100's, and log2 of the number of GPUs."""

HOST = "host"
# A server CPU core or two: far below any GPU, so that what is predicted across the gap is rightly very uncertain.
_HOST_FLOPS = 1e11
_HOST_BANDWIDTH = 20e9
_REFERENCE = "V100"
# Simulated kinds are throttled by exactly the declared ratio; what is left is the overhead of short steps.
_SIMULATED_VARIANCE = (math.log(1.1) / 1.645) ** 2
# Machines without a GPU are one kind, whatever CPU they have.
_CPU_VARIANCE = (math.log(1.5) / 1.645) ** 2


@dataclass(frozen=True, slots=True)
class KindFacts:
    """`architecture` names what kinds share besides figures (drivers, kernels); `shift` is a known logarithm of speed;
    `own_variance` is the part that nothing else tells of."""

    features: tuple[float, ...]
    architecture: str
    shift: float = 0.0
    own_variance: float = 0.0


def kind_of(gpu: str | None, gpu_count: int) -> Kind:
    """The kind of a machine: all machines without a GPU are one."""
    return (None, 0) if gpu is None else (gpu, gpu_count)


def kind_name(kind: Kind) -> str:
    """'CPU', 'V100', '8 x V100'."""
    gpu, count = kind
    if gpu is None:
        return "CPU"
    return gpu if count == 1 else f"{count} x {gpu}"


def on_host(kind: Kind) -> bool:
    """Whether it is this machine's processor, simulated kinds included: those are as fast as their throttle says."""
    return facts(kind).architecture == HOST


@cache
def facts(kind: Kind) -> KindFacts:
    """Raises KeyError for a GPU that is not in the hardware table."""
    gpu, count = kind
    if gpu is None:
        return KindFacts(_features(_HOST_FLOPS, _HOST_FLOPS, _HOST_BANDWIDTH, 1), HOST, own_variance=_CPU_VARIANCE)
    entry = GPUS[gpu]
    if entry.simulated:
        host = _features(_HOST_FLOPS, _HOST_FLOPS, _HOST_BANDWIDTH, count)
        return KindFacts(host, HOST, math.log(entry.throttle), _SIMULATED_VARIANCE)
    return KindFacts(_features(entry.fp32_flops, entry.fp16_flops, entry.bandwidth_bytes_per_s, count), gpu)


def _features(fp32: float, fp16: float, bandwidth: float, count: int) -> tuple[float, ...]:
    reference = GPUS[_REFERENCE]
    return (
        1.0,
        math.log(fp32 / reference.fp32_flops),
        math.log(fp16 / reference.fp16_flops),
        math.log(bandwidth / reference.bandwidth_bytes_per_s),
        math.log2(max(count, 1)),
    )
