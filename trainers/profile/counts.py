"""StepCounts: the measured work of one training step."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

WARM_STEPS = 1
COUNTED_STEPS = 1
TIMED_STEPS = 3
STEPS = WARM_STEPS + COUNTED_STEPS + 1 + TIMED_STEPS
"""The steps of a profile: one to warm up, one that is counted, one to recover from counting, the rest timed."""

TOO_FEW_STEPS = 4
"""Exit code of the child if the program ended before it had recorded STEPS steps."""


@dataclass(frozen=True, slots=True)
class StepCounts:
    """One step: FLOPs (`half_flops` of them in 16 bits or fewer), bytes that operations read and write, operations.

    `resident_bytes` are parameters, gradients and optimizer state (`weight_bytes` and `gradient_bytes` are the first
    two); `activation_bytes` are kept by forward for backward; `step_s` is wall time on this host without counting, and
    `outside_s` the part of it outside of operations: data loading, sleeping, Python. `precision` and `sort` are the
    most frequent ones by FLOPs, as in `Counter`.
    """

    flops: float
    half_flops: float
    traffic_bytes: float
    operations: int
    parameters: int
    resident_bytes: int
    activation_bytes: int
    step_s: float
    outside_s: float
    precision: str | None
    sort: str
    weight_bytes: int
    gradient_bytes: int

    def save(self, path: Path) -> None:
        """Write the counts as JSON. Raises OSError."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: Path) -> StepCounts:
        """Read counts. Raises OSError, ValueError and TypeError for a file that `save` did not write."""
        return cls(**json.loads(path.read_text()))
