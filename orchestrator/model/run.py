"""Run and Migration: what really happened to a job.

A job is a chain of runs; each run is one continuous execution on one instance and has a generation of its own, which
fences all older ones. A migration brings up one run (and releases the one before it, if there is one): the first
placement, a planned move and a recovery are the same sequence of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

RunState = Literal["provisioning", "starting", "training", "quiesced", "ended"]
RunEnd = Literal[
    "finished",  # all steps done
    "failed",  # by the job's own doing: its code raised, died, stood still, or ended too early
    "moved",  # handed over to its successor
    "preempted",  # the provider took the instance
    "lost",  # the instance or its trainer vanished
    "paused",
    "cancelled",
    "aborted",  # it never took over: its migration was given up before cutover
]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution. `start_step` is where it restored, `last_step` the last that it reported.

    All instants are market time. `created_at_ms` is when it was decided that the job goes there; of a standby, when it
    was taken. `repeated_steps` were done by an earlier run already and lost with it. `machine_from_ms` is set when an
    earlier run had its machine: that one's bill began then, and this run's own interval is the rest of it. To its
    machine a checkpoint of `moved_bytes` was brought from the place `moved_from` (provider/region/zone); `kept_bytes`
    are the room there for as many checkpoints as the job keeps (None: their size is not known). `save_wall_s` is what
    its latest save took, `setup_wall_s` the set-up of its environment.
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
        """When the bill of its machine began, whichever run had it then; None while it is not billed."""
        return self.billed_from_ms if self.machine_from_ms is None else self.machine_from_ms


class Step(StrEnum):
    """The persisted steps of a migration, in order. Before CUTOVER it can be given up; after it, only forward."""

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
    "first placement", "probe", "cheaper offer", "objective", "notice", "lost", "retry", "resume", "by hand", "standby"
]
"""Why a job moves. One of "standby" moves nothing: it brings up a standby and waits; whoever takes that opens
another."""

VOLUNTARY: frozenset[Reason] = frozenset({"cheaper offer", "objective", "probe"})
"""Reasons of moves that a job could do without: such a move is made only while it pays."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One move. `token` is deterministic in (migration, attempt) and is on disk before the launch that uses it.

    `manifest` names the checkpoint that the target starts from (None: from scratch), fixed at CHECKPOINT or RESTORE.
    `expected_saving_nano_usd` is what the plan promised; the report compares it with what came of it.
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
