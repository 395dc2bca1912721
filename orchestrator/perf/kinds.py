"""Kinds of hardware as the throughput model sees them: a few logarithms of data-sheet figures. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from providers.hardware import GPUS, Precision

InstanceKind = tuple[str | None, int]  # GPU and how many; (None, 0) is any machine without one

FEATURES = ("level", "arithmetic", "half_peak", "bandwidth", "power", "amd", "doublings", "link_doublings")
"""1, then the logarithms of peak arithmetic at the job's precision, of that at 16 bits for a job in FP32 (it tells how
new a chip is; 0 for others), of memory bandwidth and of the power that the board may draw (0 in FP32: its tables have
three chips), over the reference GPU's; 1 for a chip of AMD's, whose sheets and kernels are others; then log2 of the
number of GPUs, and that times the logarithm of the link between them."""

HOST = "host"
_HOSTS = "hosts"
# A server CPU core or two: far below any GPU, so that what is predicted across the gap is rightly very uncertain.
_HOST_FLOPS = 1e11
_HOST_BANDWIDTH = 20e9
REFERENCE: dict[bool, str] = {False: "V100", True: "A100-80GB"}
"""The GPU whose figures are 0, by `narrow`: the one that each collection of measured rates knows best."""
# Simulated kinds are throttled by exactly the declared ratio; what is left is the overhead of short steps.
_SIMULATED_VARIANCE = (math.log(1.1) / 1.645) ** 2
# Machines without a GPU are one kind, whatever CPU they have.
_CPU_VARIANCE = (math.log(1.5) / 1.645) ** 2


@dataclass(frozen=True, slots=True)
class InstanceKindFacts:
    """`generation` and `architecture` name what kinds share besides figures (drivers, kernels): all chips of a design,
    and those of one name. `shift` is a known logarithm of speed; `own_variance` the part that nothing else tells of."""

    features: tuple[float, ...]
    generation: str
    architecture: str
    shift: float = 0.0
    own_variance: float = 0.0


def kind_of(gpu: str | None, gpu_count: int) -> InstanceKind:
    """The kind of a machine: all machines without a GPU are one."""
    return (None, 0) if gpu is None else (gpu, gpu_count)


def kind_name(kind: InstanceKind) -> str:
    """'CPU', 'V100', '8 x V100'."""
    gpu, count = kind
    if gpu is None:
        return "CPU"
    return gpu if count == 1 else f"{count} x {gpu}"


def relative_to(kind: InstanceKind) -> InstanceKind:
    """The fixed kind that speeds on `kind` are compared with while nothing is known of the job."""
    return (None, 0) if on_host(kind) else ("A100-80GB", 1)


def on_host(kind: InstanceKind) -> bool:
    """Whether it is this machine's processor, simulated kinds included: those are as fast as their throttle says."""
    return facts(kind).architecture == HOST


def narrow(precision: Precision) -> bool:
    """Whether operands are narrower than 32 bits (TF32 has 19): matrix units take those, whose efficiency is another
    matter."""
    return precision != "fp32"


@cache
def facts(kind: InstanceKind, precision: Precision = "fp32") -> InstanceKindFacts:
    """Raises KeyError for a GPU that is not in the hardware table."""
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
