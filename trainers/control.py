"""The control directory: what the node's agent asks of a trainer, and what the trainer says of itself.

    notice.json {"kind", "deadline_monotonic_s"}    this machine will be taken away
    quiesce.json   {"until_monotonic_s", "successor"}  write a checkpoint and wait to be replaced by that generation
    stop        (empty)                             write a checkpoint and end
    lease.json  {"until_monotonic_s"}               train no longer than this
    progress.json                                   a Progress; the only file that the trainer writes

What is read is checked first (trainers.checked_json): a file that another process spoiled is a MalformedWord, and no
other error. Instants are of time.monotonic(), which is one clock per boot of a machine.
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
from trainers.errors import MalformedWord

TrainerState = Literal[
    "starting", "restored", "training", "quiesced", "checkpointed_and_stopped", "finished", "failed", "fenced"
]
Awaited = Literal["begin", "step", "save", "end"]


@dataclass(frozen=True, slots=True)
class Notice:
    """The machine goes at `deadline_monotonic_s`."""

    kind: str
    deadline_monotonic_s: float


@dataclass(frozen=True, slots=True)
class QuiesceOrder:
    """Wait at a step boundary until `until_monotonic_s`: generation `successor` is about to take the job over."""

    until_monotonic_s: float
    successor: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run says of itself. Seconds are wall seconds of this run; `manifest` is the newest checkpoint that it
    committed or restored; `weights_hash` is set by a finished run, `error` by a failed one.

    `still_since_s` (time.monotonic()) is since when the thing `awaited` is due: that the program begins to train, a
    step, the end of a save, or the end of the program after its last step; None while nothing is: while it restores,
    waits for its turn or holds. `save_wall_s` is how long the latest save took. `not_finite_step` is the first step of
    this run whose loss was NaN or infinite. `stopped_early` is set by a program that called run.stop().
    `permanent`: the program could not be loaded or called with its arguments, and fails alike on any machine.
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


PROGRESS: Mapping[str, checked_json.Check] = {
    "state": checked_json.one_of(*get_args(TrainerState)),
    "step": checked_json.count,
    "total_steps": checked_json.maybe(checked_json.count),
    "loss": checked_json.maybe(checked_json.number),
    "step_wall_s": checked_json.maybe(checked_json.seconds),
    "start_step": checked_json.count,
    "manifest": checked_json.maybe(checked_json.manifest),
    "manifest_step": checked_json.count,
    "useful_s": checked_json.seconds,
    "checkpoint_s": checked_json.seconds,
    "weights_hash": checked_json.maybe(checked_json.plain),
    "error": checked_json.maybe(checked_json.text),
    "still_since_s": checked_json.maybe(checked_json.seconds),
    "awaited": checked_json.one_of(*get_args(Awaited)),
    "save_wall_s": checked_json.maybe(checked_json.seconds),
    "not_finite_step": checked_json.maybe(checked_json.count),
    "stopped_early": checked_json.yes_no,
    "permanent": checked_json.yes_no,
}
"""What each field of a Progress may be."""
_HOLD: Mapping[str, checked_json.Check] = {"until_monotonic_s": checked_json.number, "successor": checked_json.count}
_INSTANT: Mapping[str, checked_json.Check] = {"until_monotonic_s": checked_json.number}
_NOTICE: Mapping[str, checked_json.Check] = {"kind": checked_json.text, "deadline_monotonic_s": checked_json.number}


class ControlDirectory:
    """Both ends of a control directory. Asking costs one stat per question while nothing has changed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: dict[str, tuple[tuple[int, int, int], Any]] = {}

    # The trainer's questions

    def notice(self) -> Notice | None:
        """Raises MalformedWord, as all the questions do."""
        data = self._read("notice.json", _NOTICE)
        return None if data is None else Notice(**data)

    def quiesce(self) -> QuiesceOrder | None:
        """Until when the trainer shall wait at a step boundary, and for whom; None: it need not."""
        data = self._read("quiesce.json", _HOLD)
        return None if data is None else QuiesceOrder(**data)

    def lease_until(self) -> float | None:
        """Instant after which the trainer must not train; None: there is no lease."""
        return self._instant("lease.json")

    def stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def write_progress(self, progress: Progress) -> None:
        self._write("progress.json", dataclasses.asdict(progress))

    # The agent's side

    def put_notice(self, notice: Notice) -> None:
        self._write("notice.json", dataclasses.asdict(notice))

    def put_quiesce(self, quiesce: QuiesceOrder) -> None:
        self._write("quiesce.json", dataclasses.asdict(quiesce))

    def clear_quiesce(self) -> None:
        (self.path / "quiesce.json").unlink(missing_ok=True)

    def put_lease(self, until_monotonic_s: float) -> None:
        self._write("lease.json", {"until_monotonic_s": until_monotonic_s})

    def request_stop(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "stop").touch()

    def progress(self) -> Progress | None:
        """The trainer's latest word; None before its first. Raises MalformedWord."""
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
                    raise MalformedWord(f"{name} does not say {min(missing)}")
                self._seen[name] = (signature, found)
            return self._seen[name][1]  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MalformedWord(f"{name} cannot be read: {error.strerror}") from error

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        """Atomic for readers; not synced, for these files mean nothing after a power loss."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(data, allow_nan=False))
        os.replace(temporary, self.path / name)
