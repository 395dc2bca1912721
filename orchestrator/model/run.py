"""Run and Migration: what happened to a job.

A job is a chain of runs. Each run is one continuous execution on one machine and has its own generation, which fences
all older ones. A migration starts one run and releases the previous one, if any. The first placement, a planned move
and a recovery use the same sequence of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

RunState = Literal["provisioning", "starting", "training", "quiesced", "ended"]
RunEnd = Literal[
    "finished",  # all steps done
    "failed",  # because of the job: its code raised an error, died, stalled, or ended too early
    "moved",  # handed over to the next run
    "preempted",  # the provider took the machine away
    "lost",  # the machine or its trainer disappeared
    "paused",
    "cancelled",
    "aborted",  # never took over: its migration was aborted before cutover
]


@dataclass(frozen=True, slots=True)
class Member:
    """One machine of a run, and the interval for which the run is billed for it (market ms). `instance_id` is None
    until the machine is rented."""

    instance_id: str | None = None
    billed_from_ms: int | None = None
    billed_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One execution. `start_step` is the step that it restored, `last_step` the last step that it reported, and
    `saved_step` the step of the newest checkpoint that it reported (None: unknown).

    For a run on several machines (a gang), `members` has all machines, `instance_id` is the first of them, and the
    billed interval is from the earliest start of their bills to the latest end, once all have ended. `members` is empty
    for a run on one machine; `machines` is never empty.

    All times are market ms. `created_at_ms` is the time of the decision to run there, or of the request for its machine
    if that was later (the site had to start first); for a standby, the time of its promotion. `repeated_steps` were
    done by an earlier run and lost with it. `machine_from_ms` is set if an earlier run had the same machine: the
    machine's bill began then, and this run's interval is the rest. `moved_bytes` of a checkpoint were transferred to
    its machine from the location `moved_from` (provider/region/zone). `kept_bytes` is the size there of as many
    checkpoints as the job keeps (None: unknown). `save_wall_s` is the duration of its latest save, `setup_wall_s` the
    duration of setting up its environment.
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
    saved_step: int | None = None
    members: tuple[Member, ...] = ()

    @property
    def machines(self) -> tuple[Member, ...]:
        """The machines that the run has or will get."""
        return self.members or (Member(self.instance_id, self.billed_from_ms, self.billed_to_ms),)

    @property
    def complete(self) -> bool:
        """Whether all its machines are known."""
        return all(each.instance_id is not None for each in self.machines)

    @property
    def nodes(self) -> int:
        """The number of machines that the run has or will get."""
        return len(self.members) or 1

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """The machines that were rented for it."""
        if not self.members:
            return () if self.instance_id is None else (self.instance_id,)
        return tuple(each.instance_id for each in self.machines if each.instance_id is not None)

    @property
    def machine_billed_from_ms(self) -> int | None:
        """When its machine's bill began, also if another run had the machine then (market ms); None if not billed
        yet."""
        return self.billed_from_ms if self.machine_from_ms is None else self.machine_from_ms


def steps_done(runs: Iterable[Run]) -> int:
    """The step from which a job with these runs continues: the last step of its latest run that trained, while the run
    is alive; after that, the step of its newest checkpoint."""
    latest = latest_trained(runs)
    if latest is None:
        return 0
    return latest.saved_step if latest.state == "ended" and latest.saved_step is not None else latest.last_step


def latest_trained(runs: Iterable[Run]) -> Run | None:
    """The latest run that took the job over."""
    return max(trained(runs), key=lambda run: run.generation, default=None)


def trained(runs: Iterable[Run]) -> list[Run]:
    """The runs that took over, without attempts that were aborted before they trained."""
    return [run for run in runs if run.training_from_ms is not None]


def billed_together(machines: Sequence[Member]) -> tuple[int | None, int | None]:
    """The billed interval of a run on these machines: from the earliest start to the latest end (None while a rented
    machine has no end), in market ms."""
    began = [each.billed_from_ms for each in machines if each.billed_from_ms is not None]
    ended = [each.billed_to_ms for each in machines if each.instance_id is not None]
    last = None if None in ended else max((each for each in ended if each is not None), default=None)
    return min(began, default=None), last


class Step(StrEnum):
    """The stored steps of a migration, in order. It can be aborted before CUTOVER; after that, it can only complete."""

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
"""Why a job moves. A "standby" migration moves nothing: it starts a standby and waits. Promoting the standby starts
another migration."""

VOLUNTARY: frozenset[Reason] = frozenset({"cheaper offer", "objective", "probe"})
"""Reasons for optional moves, which are made only while they pay."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One move. `token` is derived from (migration, attempt) and stored before the launch that uses it.

    `manifest` names the checkpoint from which the target starts (None: from the beginning), chosen at CHECKPOINT or
    RESTORE. `expected_saving_nano_usd` is the plan's expectation; the report compares it with the result. `disk_gb` is
    the disk, and `to_live_s` the time to live, that each attempt of the launch requests (LaunchSpec: GiB, market
    seconds); None before the first one. `also` are
    other offers, the best first, that the launch may use; once the machine is known, `offer_id` is its offer.
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
    disk_gb: int | None = None
    to_live_s: int | None = None
    also: tuple[str, ...] = ()
