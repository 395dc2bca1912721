"""Work: what one training step of a job does, counted on any machine, and what hardware makes of it. Pure.

A step takes the longer of two: its arithmetic and memory traffic at the share of the data sheet's peaks that training
reaches, and the time it takes a host to launch its operations one after the other (Williams et al. 2009, "Roofline").

Must not know: how the work was counted, prices, what was measured of the job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.perf.kinds import HOST, Kind, facts
from providers.hardware import GPUS

# ResNet-50 (24.6 GFLOP per image and step) in Gavel's table reaches 44 % of FP32 peak on V100 and P100, 24 % on K80.
_ARITHMETIC_SHARE = 0.4
_TRAFFIC_SHARE = 0.7
_LAUNCH_S = 7e-6  # an eager PyTorch operation from Python to the GPU's queue
EFFICIENCY_SD = 0.5
"""How far (natural logarithm, one standard deviation) programs lie off these shares: a factor 2.3 both ways at 90 %."""
# What a process holds on a GPU before its first tensor: CUDA context and the libraries' workspaces.
_RUNTIME_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one step of the whole job: FLOPs by dtype, bytes that operations read and write, operations.

    `resident_bytes` are parameters, gradients and optimizer state, `activation_bytes` what forward keeps for backward.
    `host_steps_per_s` is the rate on the machine that counted, without counting. Raises ValueError when a count is
    negative or not finite, or there is no traffic at all.
    """

    flops: float
    half_flops: float  # of `flops`, those in FP16 or BF16
    traffic_bytes: float
    operations: int
    parameters: int
    resident_bytes: int
    activation_bytes: int
    host_steps_per_s: float

    def __post_init__(self) -> None:
        counts = (self.flops, self.half_flops, self.traffic_bytes, self.resident_bytes, self.activation_bytes)
        if any(not (count >= 0 and math.isfinite(count)) for count in counts) or self.half_flops > self.flops:
            raise ValueError(f"work is counted from 0 on: {self}")
        if self.operations <= 0 or self.traffic_bytes <= 0:
            raise ValueError(f"a training step does something: {self}")
        if not (self.host_steps_per_s > 0 and math.isfinite(self.host_steps_per_s)):
            raise ValueError(f"a rate must be positive: {self}")

    def log_rate(self, kind: Kind) -> float:
        """Logarithm of steps/s on ONE device of the kind. Raises KeyError for an unknown GPU."""
        known = facts(kind)
        if known.architecture == HOST or kind[0] is None:
            return math.log(self.host_steps_per_s) + known.shift
        gpu = GPUS[kind[0]]
        arithmetic_s = (self.flops - self.half_flops) / gpu.fp32_flops + self.half_flops / gpu.fp16_flops
        traffic_s = self.traffic_bytes / gpu.bandwidth_bytes_per_s
        busy_s = arithmetic_s / _ARITHMETIC_SHARE + traffic_s / _TRAFFIC_SHARE
        return -math.log(max(busy_s, self.operations * _LAUNCH_S))

    @property
    def gpu_memory_bytes(self) -> int:
        """What one GPU needs to hold the whole job."""
        return self.resident_bytes + self.activation_bytes + _RUNTIME_BYTES

    def shortfall_bytes(self, kind: Kind) -> int:
        """By how much the job does not fit into one GPU of the kind; 0 where it fits, and on a host."""
        gpu = kind[0]
        if gpu is None or GPUS[gpu].simulated:
            return 0
        return max(self.gpu_memory_bytes - GPUS[gpu].memory_bytes, 0)
