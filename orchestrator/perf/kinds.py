"""Kinds: hardware as the throughput model sees it: logarithms of a few data-sheet figures. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from providers.hardware import GPUS, Precision

InstanceKind = tuple[str | None, int]  # GPU and how many; (None, 0) is any machine without one

FEATURES = ("level", "arithmetic", "half_peak", "bandwidth", "power", "amd", "doublings", "link_doublings")
"""1; then the logarithms, relative to the reference GPU, of peak arithmetic at the job's precision, of peak 16-bit
arithmetic for jobs in FP32 (an indicator of how new a chip is; 0 for others), of memory bandwidth, and of board power
(0 in FP32, whose tables have three chips); 1 for AMD chips, whose data sheets and kernels differ; then log2 of the
number of GPUs, and that times the logarithm of the bandwidth of the link between them."""

HOST = "host"
_HOSTS = "hosts"
# One or two server CPU cores: far below any GPU, so that predictions across the gap are rightly very uncertain.
_HOST_FLOPS = 1e11
_HOST_BANDWIDTH = 20e9
REFERENCE: dict[bool, str] = {False: "V100", True: "A100-80GB"}
"""The reference GPU (all figures 0), by `narrow`: the best measured one of each collection of rates."""
# Simulated kinds are throttled by exactly the declared ratio; what remains is the overhead of short steps.
_SIMULATED_VARIANCE = (math.log(1.1) / 1.645) ** 2
# Machines without a GPU are one kind, whatever CPU they have.
_CPU_VARIANCE = (math.log(1.5) / 1.645) ** 2


@dataclass(frozen=True, slots=True)
class InstanceKindFacts:
    """The model's facts about a kind. `generation` and `architecture` name properties that kinds share besides figures
    (drivers, kernels): those of all chips of a design, and those of chips with one name. `shift` is a known logarithm
    of speed; `own_variance` is the variance that no other kind explains."""

    features: tuple[float, ...]
    generation: str
    architecture: str
    shift: float = 0.0
    own_variance: float = 0.0


def kind_of(gpu: str | None, gpu_count: int) -> InstanceKind:
    """The kind of a machine. All machines without a GPU are one kind."""
    return (None, 0) if gpu is None else (gpu, gpu_count)


def kind_name(kind: InstanceKind) -> str:
    """The kind in words: 'CPU', 'V100', '8 x V100'. A `kind` is (GPU name or None, count)."""
    gpu, count = kind
    if gpu is None:
        return "CPU"
    return gpu if count == 1 else f"{count} x {gpu}"


def relative_to(kind: InstanceKind) -> InstanceKind:
    """The fixed kind that speeds on `kind` are compared with while the job is unknown."""
    return (None, 0) if on_host(kind) else ("A100-80GB", 1)


def on_host(kind: InstanceKind) -> bool:
    """Whether it is this machine's processor, including simulated kinds, which run at their declared speed."""
    return facts(kind).architecture == HOST


def narrow(precision: Precision) -> bool:
    """Whether operands are narrower than 32 bits (TF32 has 19). These use matrix units, whose efficiency is
    different."""
    return precision != "fp32"


@cache
def facts(kind: InstanceKind, precision: Precision = "fp32") -> InstanceKindFacts:
    """The facts of a kind at a precision. Raises KeyError for a GPU that is not in the hardware table."""
    gpu, count = kind
    if gpu is None:
        return InstanceKindFacts(_of_host(1, precision), _HOSTS, HOST, own_variance=_CPU_VARIANCE)
    entry = GPUS[gpu]
    if entry.simulated:
        return InstanceKindFacts(
            _of_host(count, precision), _HOSTS, HOST, math.log(entry.throttle), _SIMULATED_VARIANCE
        )
    reference = GPUS[REFERENCE[narrow(precision)]]
    chip = _of_chip(entry.peak_flops(precision), entry.fp16_flops, entry.bandwidth_bytes_per_s, precision)
    doublings = math.log2(count)
    power = math.log(entry.watts / reference.watts) if narrow(precision) else 0.0
    link = math.log(entry.link_bytes_per_s / reference.link_bytes_per_s)
    amd = float(entry.generation.startswith("CDNA"))
    return InstanceKindFacts((*chip, power, amd, doublings, doublings * link), entry.generation, gpu)


def _of_host(count: int, precision: Precision) -> tuple[float, ...]:
    return (*_of_chip(_HOST_FLOPS, _HOST_FLOPS, _HOST_BANDWIDTH, precision), 0.0, 0.0, math.log2(count), 0.0)


def _of_chip(flops: float, half_flops: float, bandwidth: float, precision: Precision) -> tuple[float, ...]:
    reference = GPUS[REFERENCE[narrow(precision)]]
    return (
        1.0,
        math.log(flops / reference.peak_flops("fp16" if narrow(precision) else "fp32")),
        0.0 if narrow(precision) else math.log(half_flops / reference.fp16_flops),
        math.log(bandwidth / reference.bandwidth_bytes_per_s),
    )
