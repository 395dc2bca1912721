"""The control directory: requests from the node's agent to a trainer, and the trainer's progress.

    notice.json    {"kind", "deadline_monotonic_s"}    this machine will be taken away
    warned         (empty)                             it may soon be taken away: write a checkpoint at once
    quiesce.json   {"until_monotonic_s", "successor"}  write a checkpoint and wait for that generation to take over
    stop           (empty)                             write a checkpoint and end
    lease.json     {"until_monotonic_s"}               do not train beyond this time
    risk.json      {"losses_per_h", "charge_s"}        how often this machine is lost, and what a checkpoint costs
    progress.json                                      a Progress; the only file that the trainer writes

Files are validated when they are read (trainers.checked_json); a file that another process damaged raises
MalformedMessage and nothing else. Times are from time.monotonic(), which all processes share until the machine reboots.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from trainers import checked_json
from trainers.errors import MalformedMessage

TrainerState = Literal[
    "starting", "restored", "training", "quiesced", "checkpointed_and_stopped", "finished", "failed", "fenced"
]
LAST_STATES: tuple[TrainerState, ...] = ("checkpointed_and_stopped", "finished", "failed", "fenced")
"""The states of ended runs."""
EXIT_CODES: Mapping[TrainerState, int] = {"finished": 0, "checkpointed_and_stopped": 0, "failed": 1, "fenced": 3}
"""The exit status of a run's process, by the run's last state."""
Awaited = Literal["begin", "step", "save", "end"]


@dataclass(frozen=True, slots=True)
class Notice:
    """The machine will be taken away at `deadline_monotonic_s`."""

    kind: str
    deadline_monotonic_s: float


@dataclass(frozen=True, slots=True)
class QuiesceOrder:
    """Wait at a step boundary until `until_monotonic_s`: generation `successor` is about to take over the job."""

    until_monotonic_s: float
    successor: int


@dataclass(frozen=True, slots=True)
class Risk:
    """How often the run's machines are expected to be taken away, per hour of wall time, and the store's charge for one
    checkpoint, in seconds of these machines' price; None if unknown."""

    losses_per_h: float
    charge_s: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The report of a run. Seconds are wall seconds of this run; `manifest` is the newest checkpoint that it committed
    or restored; `weights_hash` is set by a finished run, `error` by a failed one.

    `still_since_s` (time.monotonic()) is the time since which the run has waited for `awaited`: the beginning of
    training, a step, the end of a save, or the end of the program after its last step. It is None while nothing is
    awaited: while the run restores, waits for its fence or is quiesced. `save_wall_s` is the duration of the latest
    save. `not_finite_step` is the first step of this run whose loss was NaN or infinite. `stopped_early` is set by a
    program that called run.stop(). `permanent`: the program could not be loaded or called with its arguments, and would
    fail on any machine. `peer_lost`: a failed run of several processes ended because a process on another machine did.
    """

    state: TrainerState = "starting"
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
    error: str | None = None
    still_since_s: float | None = None
    awaited: Awaited = "step"
    save_wall_s: float | None = None
    not_finite_step: int | None = None
    stopped_early: bool = False
    permanent: bool = False
    peer_lost: bool = False


PROGRESS: Mapping[str, checked_json.Check] = {
    "state": checked_json.one_of(*get_args(TrainerState)),
    "step": checked_json.count,
    "total_steps": checked_json.optional(checked_json.count),
    "loss": checked_json.optional(checked_json.number),
    "step_wall_s": checked_json.optional(checked_json.seconds),
    "start_step": checked_json.count,
    "manifest": checked_json.optional(checked_json.manifest),
    "manifest_step": checked_json.count,
    "useful_s": checked_json.seconds,
    "checkpoint_s": checked_json.seconds,
    "weights_hash": checked_json.optional(checked_json.plain),
    "error": checked_json.optional(checked_json.text),
    "still_since_s": checked_json.optional(checked_json.seconds),
    "awaited": checked_json.one_of(*get_args(Awaited)),
    "save_wall_s": checked_json.optional(checked_json.seconds),
    "not_finite_step": checked_json.optional(checked_json.count),
    "stopped_early": checked_json.yes_no,
    "permanent": checked_json.yes_no,
    "peer_lost": checked_json.yes_no,
}
"""The check of each field of a Progress."""
_QUIESCE: Mapping[str, checked_json.Check] = {"until_monotonic_s": checked_json.number, "successor": checked_json.count}
_INSTANT: Mapping[str, checked_json.Check] = {"until_monotonic_s": checked_json.number}
# A rate has the same range as a duration: any number from 0.
_RISK: Mapping[str, checked_json.Check] = {
    "losses_per_h": checked_json.seconds,
    "charge_s": checked_json.optional(checked_json.seconds),
}
_NOTICE: Mapping[str, checked_json.Check] = {"kind": checked_json.text, "deadline_monotonic_s": checked_json.number}


class ControlDirectory:
    """Both sides of a control directory. A read takes one stat call while the file is unchanged."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: dict[str, tuple[tuple[int, int, int], Any]] = {}

    # The trainer's side

    def notice(self) -> Notice | None:
        """The notice given to this machine; None if there is none. Raises MalformedMessage."""
        data = self._read("notice.json", _NOTICE)
        return None if data is None else Notice(**data)

    def quiesce(self) -> QuiesceOrder | None:
        """The order to wait at a step boundary; None if there is none. Raises MalformedMessage."""
        data = self._read("quiesce.json", _QUIESCE)
        return None if data is None else QuiesceOrder(**data)

    def lease_until(self) -> float | None:
        """Monotonic time in seconds after which the trainer must not train; None without a lease. Raises
        MalformedMessage.
        """
        return self._instant("lease.json")

    def risk(self) -> Risk | None:
        """The risk of losing this machine; None if it is unknown. Raises MalformedMessage."""
        data = self._read("risk.json", _RISK)
        return None if data is None else Risk(**data)

    def stop_requested(self) -> bool:
        """True if the trainer should write a checkpoint and end."""
        return (self.path / "stop").exists()

    def warned(self) -> bool:
        """True if the machine is more likely than usual to be taken away."""
        return (self.path / "warned").exists()

    def write_progress(self, progress: Progress) -> None:
        """Replace progress.json. Raises OSError."""
        self._write("progress.json", dataclasses.asdict(progress))

    # The agent's side

    def put_notice(self, notice: Notice) -> None:
        """Announce that the machine will be taken away. Raises OSError."""
        self._write("notice.json", dataclasses.asdict(notice))

    def warn(self) -> None:
        """Say that the machine is more likely than usual to be taken away. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "warned").touch()

    def put_quiesce(self, quiesce: QuiesceOrder) -> None:
        """Ask the trainer to write a checkpoint and wait. Raises OSError."""
        self._write("quiesce.json", dataclasses.asdict(quiesce))

    def clear_quiesce(self) -> None:
        """Let a waiting trainer continue."""
        (self.path / "quiesce.json").unlink(missing_ok=True)

    def put_risk(self, risk: Risk) -> None:
        """Say how often the machine is expected to be lost. Raises OSError."""
        self._write("risk.json", dataclasses.asdict(risk))

    def put_lease(self, until_monotonic_s: float) -> None:
        """Allow training until this monotonic time (seconds). Raises OSError."""
        self._write("lease.json", {"until_monotonic_s": until_monotonic_s})

    def request_stop(self) -> None:
        """Ask the trainer to write a checkpoint and end. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "stop").touch()

    def progress(self) -> Progress | None:
        """The trainer's latest report; None before its first. Raises MalformedMessage."""
        data = self._read("progress.json", PROGRESS)
        return None if data is None else Progress(**data)

    def _instant(self, name: str) -> float | None:
        data = self._read(name, _INSTANT)
        return None if data is None else float(data["until_monotonic_s"])

    def _read(self, name: str, form: Mapping[str, checked_json.Check]) -> Mapping[str, Any] | None:
        path = self.path / name
        try:
            status = path.stat()
            signature = (status.st_ino, status.st_mtime_ns, status.st_size)
            if name not in self._seen or self._seen[name][0] != signature:
                found = checked_json.fitting(checked_json.read(path, name), form, name)
                if form is not PROGRESS and (missing := form.keys() - found.keys()):
                    raise MalformedMessage(f"{name} has no {min(missing)}")
                self._seen[name] = (signature, found)
            return self._seen[name][1]  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MalformedMessage(f"{name} cannot be read: {error.strerror}") from error

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        """Atomic for readers. Not synced, because these files mean nothing after a power loss."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(data, allow_nan=False))
        os.replace(temporary, self.path / name)
