"""Views of `profile` and of imported tables of speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kind of hardware for a profiled job. `shortfall_bytes`: the missing memory, 0 if the job fits.

    Speeds are in steps per market second, with 5th and 95th percentiles; the price is the lowest of the kind's offers.
    """

    gpu: str | None
    gpu_count: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    throughput_source: str
    shortfall_bytes: int
    nano_usd_per_hour: int | None
    nano_usd_per_step: float | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class ProfileView:
    """The work of one step of a job, and its predicted speed on each kind of hardware, cheapest per step first.

    `precision` is that of the predictions; `computes` is the prevailing kind of arithmetic: matrices, convolutions,
    recurrences or lookups. `gpu_memory_bytes` is for a single GPU; `sharding` divides the state among several. During
    `outside_wall_s` of `step_wall_s` no operation ran; a GPU does not shorten that part. One real second is
    `clock_factor` market seconds, by which the speeds of simulated kinds count.
    """

    kind: ClassVar[str] = "profile"

    name: str
    at_ms: int
    flops: float
    half_flops: float
    precision: str
    computes: str | None
    sharding: str
    traffic_bytes: float
    operations: int
    parameters: int
    resident_bytes: int
    activation_bytes: int
    gpu_memory_bytes: int
    step_wall_s: float
    outside_wall_s: float
    kinds: tuple[ProfileRow, ...]
    simulated: bool
    clock_factor: float


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """An imported table of throughputs. `misfits` is the number of entries that say that a job does not fit."""

    kind: ClassVar[str] = "throughput-table"

    source: str
    rates: int
    misfits: int
    jobs: tuple[str, ...]
    families: tuple[str, ...]
    gpus: tuple[str, ...]
