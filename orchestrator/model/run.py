"""Run and Migration: what actually happened to a job.

A job is a chain of runs. Each run is one continuous execution on one machine and has its own generation, which fences
all older ones. A migration starts one run and releases the one before it, if any: the first placement, a planned move
and a recovery are the same sequence of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

RunState = Literal["provisioning", "starting", "training", "quiesced", "ended"]
RunEnd = Literal[
    "finished",  # all steps done
    "failed",  # through the job's own fault: its code raised, died, stalled, or ended too early
    "moved",  # handed over to its successor
    "preempted",  # the provider took the machine away
    "lost",  # the machine or its trainer disappeared
    "paused",
    "cancelled",
    "aborted",  # it never took over: its migration was aborted before cutover
]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution. `start_step` is where it restored, `last_step` the last step that it reported.

    All times are market ms. `created_at_ms` is when it was decided to run there, or when its machine was requested, if
    that was later (the site had to start first); for a standby, when it was promoted.
    `repeated_steps` had been done by an earlier run and lost with it. `machine_from_ms` is set if an earlier run had
    the same machine: the machine's bill began then, and this run's own interval is the rest. `moved_bytes` of
    checkpoint were brought to its machine from the location `moved_from` (provider/region/zone); `kept_bytes` is the
    storage there for as many checkpoints as the job keeps (None: size not known). `save_wall_s` is the duration of its
    latest save, `setup_wall_s` that of setting up its environment.
    """

    id: str
    job_id: str
    generation: int
    offer_id: str
    instance_id: str | None
    state: RunState
    created_at_ms: int
    billed_from_ms: int | None = None
    billed_to_ms: int | None = None
    training_from_ms: int | None = None
    training_to_ms: int | None = None
    end: RunEnd | None = None
    start_step: int = 0
    last_step: int = 0
    last_loss: float | None = None
    step_wall_s: float | None = None
    save_wall_s: float | None = None
    setup_wall_s: float | None = None
    repeated_steps: int = 0
    useful_s: float = 0.0
    checkpoint_s: float = 0.0
    machine_from_ms: int | None = None
    moved_from: str | None = None
    moved_bytes: int | None = None
    kept_bytes: int | None = None

    @property
    def machine_billed_from_ms(self) -> int | None:
        """When its machine's bill began, whichever run had it then (market ms); None while it is not billed."""
        return self.billed_from_ms if self.machine_from_ms is None else self.machine_from_ms


class Step(StrEnum):
    """The stored steps of a migration, in order. It can be aborted before CUTOVER; after that it only goes forward."""

    PROVISION = "provision"
    READY = "ready"
    CHECKPOINT = "checkpoint"
    TRANSFER = "transfer"
    RESTORE = "restore"
    VERIFY = "verify"
    CUTOVER = "cutover"
    RELEASE = "release"
    DONE = "done"
    ABORTED = "aborted"


STEP_ORDER: tuple[Step, ...] = (
    Step.PROVISION,
    Step.READY,
    Step.CHECKPOINT,
    Step.TRANSFER,
    Step.RESTORE,
    Step.VERIFY,
    Step.CUTOVER,
    Step.RELEASE,
    Step.DONE,
)

Reason = Literal[
    "first placement", "probe", "cheaper offer", "objective", "notice", "lost", "retry", "resume", "manual", "standby"
]
"""Why a job moves. A "standby" moves nothing: it starts a standby and waits; promoting the standby opens another
migration."""

VOLUNTARY: frozenset[Reason] = frozenset({"cheaper offer", "objective", "probe"})
"""Reasons of optional moves: such a move is made only while it pays."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One move. `token` is derived from (migration, attempt) and stored before the launch that uses it.

    `manifest` names the checkpoint that the target starts from (None: from scratch), chosen at CHECKPOINT or RESTORE.
    `expected_saving_nano_usd` is the plan's expectation; the report compares it with the result.
    """

    id: str
    job_id: str
    source_run_id: str | None
    target_run_id: str
    offer_id: str
    generation: int
    reason: Reason
    step: Step
    attempt: int
    token: str
    created_at_ms: int
    step_at_ms: int
    manifest: str | None = None
    plan_id: str | None = None
    expected_saving_nano_usd: int = 0
    error: str | None = None
