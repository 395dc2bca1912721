"""Views of `nodes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from orchestrator.engine.runtime import TrainerState

NodeState = Literal["starting", "training", "quiesced", "standby", "ending", "unknown"]
"""What a machine does for its job. A "standby" waits to take over, an "ending" machine is no longer needed, and the run
of an "unknown" machine cannot be read from the store."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest report of a machine's agent.

    `age_wall_s` is by the clock of the store that holds the report; 0 if that clock is ahead of this host's. If a
    report is not `valid`, nothing else is known. `said` and `step` are from the trainer's last message, which is
    `said_age_wall_s` old; they are None if it has sent none for the current run, and `said` is "malformed" if the
    message was not valid.
    """

    age_wall_s: float
    valid: bool
    boot: str | None = None
    beat: int | None = None
    said: TrainerState | None = None
    step: int | None = None
    said_age_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One rented machine. `job`, `job_id` and `run_id` are those of the run that uses it now; the first two are None if
    its run cannot be read.

    `since_ms` is when billing began (None: not yet billed). `cost_nano_usd` is its total cost if it ended now, at the
    known prices, both booked and not booked yet; None if its run or a price cannot be read. `listed`: whether its
    provider lists it; None if the provider did not answer, or cannot be expected to list such a new machine.
    `notice_at_ms` is when the provider will take it away, if it gave notice. `heard` is None if there is no report, or
    no longer; `unreadable` says why, if the store of reports could not be read. `nodes` is the number of machines of
    its run, and `rank` its number among them, if its agent reported it.
    """

    job: str | None
    job_id: str | None
    run_id: str
    instance_id: str
    offer_id: str
    state: NodeState
    since_ms: int | None
    nano_usd_per_hour: int | None
    cost_nano_usd: int | None
    simulated: bool
    listed: bool | None
    notice_at_ms: int | None
    heard: Heard | None
    unreadable: str = ""
    nodes: int = 1
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class UnmanagedNode:
    """A machine with this installation's tag that its store did not rent. Its cost is not in the ledger."""

    instance_id: str
    offer_id: str
    since_ms: int | None
    nano_usd_per_hour: int | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A provider that did not answer."""

    provider: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeList:
    """The machines that are up, by job; with `job`, only those of the job of that name.

    A machine is listed until its end is confirmed and its cost is booked. A machine without a report for
    `silent_after_wall_s` is silent; this is `suspect_after_s` after its next report was due. One real second is
    `clock_factor` market seconds.
    """

    kind: ClassVar[str] = "nodes"

    at_ms: int
    job: str | None
    nodes: tuple[Node, ...]
    unmanaged: tuple[UnmanagedNode, ...]
    no_answer: tuple[NoAnswer, ...]
    silent_after_wall_s: float
    clock_factor: float
    simulated: bool
