"""Job: what the user wants to train, as frozen values.

Durations are market seconds, sizes bytes, money nano-USD, times epoch milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from providers.hardware import Precision
from providers.offer import CapacityType

Scalar = str | int | float | bool | None
Args = Mapping[str, "Scalar | list[Scalar] | dict[str, Scalar]"]

DEFAULT_PRECISION: Precision = "fp32"
"""The precision of a job without a profile or setting: the default of the frameworks."""
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
"""What a job shards over the GPUs of a machine: nothing; optimizer state; also gradients; also weights (the last two
values mean the same)."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Minimises cost^cost_weight x time^time_weight: cheapest = (1, 0), fastest = (0, 1).

    For fastest, finishes up to 3% later than the earliest count as equal, and the cost decides between them.
    Source: Narayanan et al. 2020 (objectives cost, time and cost^a x time^(1-a)).
    """

    cost_weight: float = 1.0
    time_weight: float = 0.0

    @property
    def name(self) -> str:
        """`cheapest`, `fastest`, or the formula."""
        if self.time_weight == 0:
            return "cheapest"
        if self.cost_weight == 0:
            return "fastest"
        return f"cost^{self.cost_weight:g} x time^{self.time_weight:g}"


CHEAPEST = Objective(1.0, 0.0)
FASTEST = Objective(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Setup:
    """What the machine needs before the program starts: a shell command, Python packages by name and in files (paths
    relative to the code's folder), a Python version such as "3.12" (None: the site's version)."""

    command: str | None = None
    requirements: tuple[str, ...] = ()
    requirement_files: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """The work: `entry` ("module:function", called with **args) or `script`, for `steps` optimizer steps.

    A script gets each of `args` as `--name value`, or exactly the words of `argv` if there are any. The trainer
    converts `epochs` to steps. `secrets` are names only: values come from the submitter's environment and are never
    stored.
    """

    entry: str | None
    script: str | None
    args: Args
    workdir: str  # absolute
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    steps: int | None
    epochs: int | None
    stall_after_s: float | None = None  # market seconds; None: as configured
    argv: tuple[str, ...] = ()
    setup: Setup | None = None
    code: str | None = None  # digest of the uploaded code (orchestrator.nodes.packing); None: not uploaded


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A canonical GPU name and the number of these GPUs that one node must have."""

    name: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Resources:
    """What each node must have, and how many nodes the job needs at once. With neither `gpus` nor `gpu_memory_bytes`:
    any machine with `cpu` and `memory_bytes`. `processes` of the program run on each node (None: one per GPU)."""

    gpus: tuple[GpuRequest, ...] = ()
    gpu_memory_bytes: tuple[int, int | None] | None = None  # at least, at most
    cpu: int | None = None
    memory_bytes: int | None = None
    nodes: int = 1
    processes: int | None = None

    @property
    def distributed(self) -> bool:
        """Whether the program is started as torchrun starts it, with RANK and so on. This is so if the job file allows
        several processes, or states their number (even 1)."""
        return self.nodes > 1 or self.processes is not None or any(gpu.count > 1 for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class Where:
    """Shell-style patterns of allowed clouds and regions; empty: all enabled ones."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where checkpoints are stored (None: the state folder), how many are kept (the latest, one per hour, the best),
    the largest share of time they may take, how many may be written at a time (0: training waits for them), and the
    bandwidth that a machine may use for them while it trains (None: no limit)."""

    to: str | None = None
    keep: int = 3
    keep_hourly: int = 0
    keep_best: int = 0
    max_overhead: float = 0.035  # CheckFreq (FAST '21): at most 3.5 % of the run time
    max_in_flight: int = 1
    max_upload_bytes_per_s: int | None = None

    @property
    def most_kept(self) -> int:
        """How many checkpoints may be stored at a time, in addition to the one that is being written."""
        return self.keep + self.keep_hourly + self.keep_best


@dataclass(frozen=True, slots=True)
class DataSource:
    """A data set: its URL or path, its path on the node, and its size in bytes if known."""

    source: str
    mount: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A path below the run's output folder that `tradewind fetch` brings back."""

    path: str
    keep: Literal["all", "last", "best"] = "all"


@dataclass(frozen=True, slots=True)
class Reproducible:
    """The settings with which results are bit-exact: thread count, deterministic algorithms, seed."""

    threads: int = 1
    deterministic: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """The job's speed according to the user: steps per market second on a machine with these GPUs.

    Raises ValueError for a rate outside LEAST_RATE to MOST_RATE.
    """

    gpu: GpuRequest
    steps_per_s: float

    def __post_init__(self) -> None:
        if not LEAST_RATE <= self.steps_per_s <= MOST_RATE:
            raise ValueError(
                f"a rate must be between {LEAST_RATE:g} and {MOST_RATE:g} steps/s, not {self.steps_per_s!r}"
            )


LEAST_RATE, MOST_RATE = 1e-6, 1e6
"""The range of plausible rates in steps per second: from one in 11 days to one per microsecond."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A validated job file: everything that the user specified, and nothing that Tradewind decided."""

    name: str
    train: TrainSpec
    project: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataSource, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    resources: Resources = Resources()
    objective: Objective = CHEAPEST
    deadline_s: float | None = None  # from submission
    deadline_at_ms: int | None = None  # or absolute
    budget_nano_usd: int | None = None
    capacity: tuple[CapacityType, ...] = (CapacityType.SPOT, CapacityType.ON_DEMAND)
    where: Where = Where()
    checkpoint: CheckpointSpec = CheckpointSpec()
    reproducible: Reproducible = Reproducible()
    standby: Literal["none", "warm"] = "none"
    probe: bool = True
    retries: int = 5
    max_duration_s: float | None = None
    precision: Precision | None = None  # None: as profiled, else DEFAULT_PRECISION
    sharding: Sharding = "none"
    expected: Expected | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted spec with its id, owner, submission time (market ms) and current state.

    In a group: the group's id, the job's weight (> 0) and the ids of the jobs of the group that must finish before it
    starts. Raises ValueError for a weight that is not a positive finite number.
    """

    id: str
    spec: JobSpec
    owner: str
    submitted_at_ms: int
    state: JobState
    group_id: str | None = None
    weight: float = 1.0
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"a weight must be a positive number, not {self.weight!r}")

    @property
    def name(self) -> str:
        """The name in the job file."""
        return self.spec.name

    @property
    def project(self) -> str:
        """The project in the job file."""
        return self.spec.project

    @property
    def deadline_at_ms(self) -> int | None:
        """The absolute deadline in epoch milliseconds of market time; None without one."""
        if self.spec.deadline_at_ms is not None:
            return self.spec.deadline_at_ms
        if self.spec.deadline_s is not None:
            return self.submitted_at_ms + int(self.spec.deadline_s * 1000)
        return None


JobState = Literal[
    "queued",  # accepted; waits for a machine or a suitable offer
    "starting",  # its first or next run is starting
    "running",
    "migrating",  # runs while its next run starts, or is being handed over to it
    "pausing",
    "paused",  # by the user or its budget; has a checkpoint and no machine
    "cancelling",
    "finished",
    "failed",
    "cancelled",
]
TERMINAL: frozenset[str] = frozenset({"finished", "failed", "cancelled"})
