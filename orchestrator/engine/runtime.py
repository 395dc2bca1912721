"""Runtime: the seam between the engine and whatever executes runs on rented nodes.

The Ray runtime (engine/site) drives real trainers; tests.rig has one that trains in virtual time. Every call is
short, never blocks on training, and may be repeated: the engine asks again after a crash of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from trainers.control import Awaited
from trainers.spec import SetupSpec

TrainerState = Literal[
    "absent",  # no actor of this run exists (not started, or gone with its node)
    "silent",  # it exists but has not answered for a while: suspected
    "starting",  # actor up, libraries or the job's code are being loaded
    "prepared",  # libraries loaded; waits for `start`
    "restored",  # checkpoint loaded and verified; waits for its generation's fence
    "training",
    "quiesced",  # checkpoint written, waits (a migration's source)
    "checkpointed_and_stopped",  # stopped by request or notice, with a checkpoint
    "finished",
    "failed",  # the job's own code raised, or its process died by itself (`exit_status`)
    "fenced",  # found a newer generation, or its lease lapsed: it stopped itself
    "malformed",  # it lives, but what it says makes no sense: nothing is known of its work
]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything a node needs to execute one run; `trainer` is the JSON of trainers.spec.TrainerSpec."""

    run_id: str
    job_id: str
    generation: int
    trainer: Mapping[str, object]
    secrets: Mapping[str, str]  # values, passed in memory only


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run says of itself, or what is known of its silence.

    `manifest` is the newest checkpoint that it committed (or restored), with `manifest_step`.
    Seconds are wall seconds spent by this run. `weights_hash` is set by a finished run, `stopped_early` by one that its
    program ended before the last step. `exit_status` is that of a trainer that died by itself on a machine that lived
    on: minus the number of the signal that killed it. `still_s` is measured beside the trainer: for so long what is
    `awaited` was due and did not come. `save_wall_s` is what the latest save took. `not_finite_step` is the first step
    whose loss was NaN or infinite.
    """

    run_id: str
    state: TrainerState
    step: int = 0
    total_steps: int | None = None
    loss: float | None = None
    step_wall_s: float | None = None
    start_step: int = 0
    manifest: str | None = None
    manifest_step: int = 0
    useful_s: float = 0.0
    checkpoint_s: float = 0.0
    weights_hash: str | None = None
    error: str | None = None  # traceback of a failed run
    silent_s: float = 0.0
    exit_status: int | None = None
    still_s: float = 0.0
    awaited: Awaited = "step"
    save_wall_s: float | None = None
    not_finite_step: int | None = None
    stopped_early: bool = False
    permanent: bool = False  # a failed run says that another try would fail alike
    setup_failed: bool = False  # it failed in the set-up of its environment
    setup_s: float | None = None  # wall seconds that this took


class Runtime(Protocol):
    """One per site."""

    def bootstrap(self, *, token: str) -> str:
        """The user data that makes a machine a node of this site (found again by `token`)."""
        ...

    def nodes(self) -> Mapping[str, str]:
        """Nodes that have joined and are alive: launch token -> node address."""
        ...

    def prepare(
        self, run_id: str, token: str, setup: SetupSpec | None = None, secrets: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Bring up the run's process on the node of `token`, its environment set up and libraries loaded, without
        beginning. The site knows where environments are; `secrets` are for the set-up. Idempotent."""
        ...

    def start(self, spec: RunSpec) -> None:
        """Begin executing a prepared run: it restores, then waits for its fence. Asked once per run id by the engine,
        again only after a crash between asking and writing that down."""
        ...

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """The present report of each run, checked (engine.machines.reports)."""
        ...

    def quiesce(self, run_id: str, successor: int) -> None:
        """Ask it to write a checkpoint at the next step boundary and to wait there for generation `successor`.

        After 30 s it trains on by itself, and first makes sure that this generation can never take the job over.
        """
        ...

    def resume(self, run_id: str) -> None:
        """Let a quiesced run train on."""
        ...

    def stop(self, run_id: str) -> None:
        """Ask it to write a checkpoint at the next step boundary and to end."""
        ...

    def stacks(self, run_id: str) -> None:
        """Ask a run that trains for the stack of each of its threads, in its log; it may be stuck anywhere."""
        ...

    def kill(self, run_id: str) -> None:
        """End it at once, without a checkpoint. Idempotent."""
        ...

    def close(self) -> None:
        """Let go of the site; runs go on."""
        ...
