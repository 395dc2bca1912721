"""Runtime: the interface between the engine and the component that executes runs on rented machines.

engine.node_runtime drives real trainers; the one in tests.rig trains in virtual time. Calls return at once: the
requested action happens later, if this control plane still leads. Calls may be repeated: the engine repeats them after
a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from orchestrator.errors import SiteError
from orchestrator.nodes.boot.launching import Remote
from orchestrator.nodes.messages import JobFiles
from trainers.control import Awaited, Risk
from trainers.spec import SetupSpec

TrainerState = Literal[
    "absent",  # this run has no actor (not started, or gone with its machine)
    "silent",  # it exists but has not answered for a while
    "starting",  # actor up, libraries or the job's code are being loaded
    "prepared",  # libraries loaded; waits for `start`
    "restored",  # checkpoint loaded and verified; waits for its generation's fence
    "training",
    "quiesced",  # checkpoint written, waits (a migration's source)
    "checkpointed_and_stopped",  # stopped by request or notice, with a checkpoint
    "finished",
    "failed",  # the job's own code raised, or its process died by itself (`exit_status`)
    "fenced",  # found a newer generation, or its lease expired: it stopped itself
    "malformed",  # it is alive, but its report is not valid: nothing is known about its work
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
    """A run's report about itself, or the known facts about a silent run.

    `manifest` is the newest checkpoint that it committed or restored, of step `manifest_step`. Times are wall seconds
    of this run. `weights_hash` is set by a finished run, `stopped_early` by one whose program ended before the last
    step. `exit_status` is that of a trainer that died while its machine lived on, or minus the signal number that
    killed it. `still_s`, measured next to the trainer, is the time that `awaited` has been overdue. `save_wall_s` is
    the time of the latest save. `not_finite_step` is the first step whose loss was NaN or infinite.
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
    permanent: bool = False  # a failed run states that another attempt would fail the same way
    setup_failed: bool = False  # it failed while setting up its environment
    setup_s: float | None = None  # wall seconds of that setup
    peer_lost: bool = False  # a failed run of several machines: its process lost contact with one on another machine
    notice_s: float | None = None  # wall seconds until the provider takes the machine away, as announced to the machine
    fetching: bool = False  # its machine is still fetching checkpoint data ahead of the restore
    fetched_bytes: int = 0  # checkpoint data that its machine has fetched ahead
    ships: bool = False  # a machine of a gang: its processes have ended; its log and outputs are not yet stored


class Runtime(Protocol):
    """The machines and runs of an installation. Every method raises SiteError if it must be called again."""

    def bootstrap(self, *, token: str, nodes: int = 1, remote: Remote | None = None) -> str:
        """The user data of the `nodes` machines with this launch token: the same text each time. `remote`: they share
        nothing with this host. Raises SiteError while no machine could start."""
        ...

    def boot_error(self, token: str) -> str | None:
        """Why the machine with this launch token cannot be used, if it reports that or the store denies it access."""
        ...

    def joined(self, token: str, nodes: int = 1) -> bool:
        """Whether all machines with this launch token have started and can be given a run."""
        ...

    def prepare(
        self,
        run_id: str,
        token: str,
        setup: SetupSpec | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        files: JobFiles | None = None,
        *,
        nodes: int = 1,
    ) -> None:
        """Start the run's processes on the machines of `token`, set up its environment and load its libraries, without
        training. The runtime knows where environments are; `secrets` are for the set-up; with `files`, each machine
        works in its own folders. Idempotent. Ends any other run there."""
        ...

    def start(self, spec: RunSpec) -> None:
        """Execute a prepared run: it restores, then waits for its fence. The engine calls this once per run id, and
        again only after a crash between the call and recording it."""
        ...

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """The present report of each run, checked (engine.machines.reports)."""
        ...

    def quiesce(self, run_id: str, successor: int) -> None:
        """Ask the run to save a checkpoint at the next step boundary and wait there for generation `successor`.

        After 30 s it resumes training by itself, after ensuring that this generation can never take over the job.
        """
        ...

    def resume(self, run_id: str) -> None:
        """Let a quiesced run resume training."""
        ...

    def stop(self, run_id: str) -> None:
        """Ask the run to save a checkpoint at the next step boundary and end."""
        ...

    def stacks(self, run_id: str) -> None:
        """Write the stack of each thread of a training run to its log, wherever it is stuck."""
        ...

    def risk(self, run_id: str, risk: Risk) -> None:
        """Send the run the expected rate of machine losses and the charge for its checkpoints."""
        ...

    def kill(self, run_id: str) -> None:
        """End the run at once, without a checkpoint. Idempotent."""
        ...

    def parted(self, run_id: str) -> bool:
        """Whether the machines of a killed run have released it: its log and outputs are completely stored. True if its
        machines never reported."""
        ...

    def unwritten(self, run_ids: Sequence[str]) -> Mapping[str, SiteError]:
        """The runs among these whose newest order has not reached the machine's storage for a while, and why."""
        ...

    def known(self) -> Sequence[str]:
        """The runs for which control objects are stored. May wait for the store: see engine.calls."""
        ...

    def forget(self, run_id: str) -> None:
        """Delete the control objects of a run whose machine has ended. Idempotent. May wait for the store, like
        `known`."""
        ...

    def close(self) -> None:
        """Write the last orders and stop listening; runs continue."""
        ...
