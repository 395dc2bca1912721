"""Work: the operations of one training step of a job, counted on any machine, and the time that hardware takes for it.
Pure.

A step takes the longer of two times: its arithmetic and memory traffic at the share of the data sheet's peaks that
training reaches (Williams et al. 2009, "Roofline"); and the host's part, which does not depend on the GPU: loading data
and running Python (as long as on the machine where the step was counted), and launching the operations one after the
other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.model import Sharding
from orchestrator.perf.kinds import HOST, InstanceKind, facts, narrow
from providers.hardware import GPUS, Precision

Sort = Literal["matrices", "convolutions", "recurrences", "lookups"]
SORTS: tuple[Sort, ...] = get_args(Sort)
"""The operations that take most of a program's time: matrix products and attention, convolutions, recurrent layers, or
table lookups with little arithmetic."""

# ResNet-50 (24.6 GFLOP per image and step) in Gavel's table reaches 44 % of FP32 peak on V100 and P100, 24 % on K80.
_ARITHMETIC_SHARE = 0.4
_TRAFFIC_SHARE = 0.7
_LAUNCH_S = 7e-6  # an eager PyTorch operation from Python to the GPU's queue
EFFICIENCY_SD = 0.5
"""One standard deviation (natural logarithm) of programs around these shares: a factor 2.3 either way at 90 %."""
# A process's memory on a GPU before its first tensor: CUDA context and the libraries' workspaces.
_RUNTIME_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one step of the whole job: FLOPs by dtype, bytes that operations read and write, operations.

    `resident_bytes` are parameters, gradients and optimizer state; of these, `weight_bytes` and `gradient_bytes`, both
    0 if they were not counted separately. `activation_bytes` is what the forward pass keeps for the backward pass.
    `precision` is the precision of most FLOPs, `sort` the kind of computation. `host_steps_per_s` is the rate on the
    counting machine without counting, and `outside_s` the wall seconds of a step there in which no operation computed.
    Raises ValueError if a count is negative or not finite, or there is no traffic.
    """

    flops: float
    half_flops: float  # of `flops`, those in FP16 or BF16
    traffic_bytes: float
    operations: int
    parameters: int
    resident_bytes: int
    activation_bytes: int
    host_steps_per_s: float
    precision: Precision | None = None
    sort: Sort | None = None
    weight_bytes: int = 0
    gradient_bytes: int = 0
    outside_s: float = 0.0

    def __post_init__(self) -> None:
        counts = (self.flops, self.half_flops, self.traffic_bytes, self.resident_bytes, self.activation_bytes)
        if any(not (count >= 0 and math.isfinite(count)) for count in counts) or self.half_flops > self.flops:
            raise ValueError(f"counts of work must be at least 0: {self}")
        if min(self.weight_bytes, self.gradient_bytes, self._optimizer_bytes) < 0:
            raise ValueError(f"weights and gradients must be at least 0 and within resident_bytes: {self}")
        if not (self.outside_s >= 0 and math.isfinite(self.outside_s)):
            raise ValueError(f"outside_s must be at least 0: {self}")
        if self.operations <= 0 or self.traffic_bytes <= 0:
            raise ValueError(f"a training step must have operations and traffic: {self}")
        if not (self.host_steps_per_s > 0 and math.isfinite(self.host_steps_per_s)):
            raise ValueError(f"the rate must be positive: {self}")

    def log_rate(self, kind: InstanceKind, precision: Precision = "fp32", *, hosted: bool = True) -> float:
        """The logarithm of steps/s on ONE device of the kind, at `precision`. Raises KeyError for an unknown GPU.

        FLOPs counted in 32 bits next to 16-bit operations stay in 32 bits; counted without any (on a processor that
        does not use them), all are assumed to be at `precision`. With `hosted` False the host is infinitely fast.
        """
        known = facts(kind)
        if known.architecture == HOST or kind[0] is None:
            return math.log(self.host_steps_per_s) + known.shift
        gpu = GPUS[kind[0]]
        sixteen = narrow(precision) and precision != "tf32"
        wide = self.flops - self.half_flops if sixteen and self.half_flops else 0.0
        arithmetic_s = wide / gpu.fp32_flops + (self.flops - wide) / gpu.peak_flops(precision)
        traffic_s = self.traffic_bytes / gpu.bandwidth_bytes_per_s
        log_rate = -math.log(arithmetic_s / _ARITHMETIC_SHARE + traffic_s / _TRAFFIC_SHARE)
        return min(log_rate, self.log_host_rate) if hosted else log_rate

    @property
    def log_host_rate(self) -> float:
        """The logarithm of steps/s that the host's part allows, however many GPUs the machine has."""
        return -math.log(self.outside_s + self.operations * _LAUNCH_S)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint: parameters and optimizer state, with the gradients if they were not counted."""
        return self.resident_bytes - self.gradient_bytes

    @property
    def gpu_memory_bytes(self) -> int:
        """Bytes that one GPU needs to hold the whole job."""
        return self.memory_bytes(1, "none")

    def memory_bytes(self, gpus: int, sharding: Sharding) -> int:
        """Bytes that each of the `gpus` of one machine needs if the state is divided among them by `sharding`."""
        return self._state_bytes(gpus, sharding) + self.activation_bytes + _RUNTIME_BYTES

    def shortfall_bytes(self, kind: InstanceKind, sharding: Sharding = "none") -> int:
        """Bytes that the job lacks on a GPU of the kind; 0 if it fits, and on a host."""
        gpu, count = kind
        if gpu is None or GPUS[gpu].simulated:
            return 0
        return max(self.memory_bytes(count, sharding) - GPUS[gpu].memory_bytes, 0)

    @property
    def _optimizer_bytes(self) -> int:
        return self.resident_bytes - self.weight_bytes - self.gradient_bytes

    def _state_bytes(self, gpus: int, sharding: Sharding) -> int:
        """Bytes of state per GPU: the stages of ZeRO (Rajbhandari et al. 2020, section 5); FSDP's full sharding is
        stage 3.

        If the parts were not counted separately, only full sharding is known to divide anything.
        """
        reported = self.weight_bytes > 0
        divided = {
            "none": 0,
            "zero1": self._optimizer_bytes if reported else 0,
            "zero2": self._optimizer_bytes + self.gradient_bytes if reported else 0,
            "zero3": self.resident_bytes,
            "fsdp": self.resident_bytes,
        }[sharding]
        return self.resident_bytes - divided + -(-divided // max(gpus, 1))
