"""RunActor: the Ray actor that drives one run on its rented node.

The run itself is a process beside it, which the node started as soon as the machine was up (trainers.process.prewarm):
so it loads its libraries while Ray still comes up, and a program has its process to itself. The actor hands it the
order and answers for it from the control directory; if either dies, so does the other's part in the run. A trainer that
died by itself, while it executed its order and its machine lived on, has failed: the node's agent, its parent, tells
how it ended. One of which nobody tells that is absent, as is one whose actor or machine died first. The same actor
serves this host and remote sites.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from orchestrator.formats.codec import decode
from trainers.control import ControlDirectory, Progress, QuiesceOrder
from trainers.errors import MalformedMessage
from trainers.process.prewarm import Trainer, describe_exit, exit_status

ACTOR_THREADS = 4
LOOK_EVERY_S = 0.05
EXIT_STATUS_S = 10.0  # the agent looks ten times a second; without its word the trainer counts as lost

Control = Literal["quiesce", "resume", "stop", "stacks"]
_LAST = ("finished", "failed", "checkpointed_and_stopped", "fenced")


class RunActor:
    """Created detached and named by its run id, on the node with the run's resource label."""

    def __init__(self, run_dir: str, with_setup: bool = False) -> None:
        """`with_setup`: it is not prepared before `set_up` was asked for and done."""
        instance_dir = Path(os.environ["TRADEWIND_INSTANCE_DIR"])
        self._control = ControlDirectory(Path(run_dir) / "control")
        self._control.path.mkdir(parents=True, exist_ok=True)
        self._state = "starting"  # as the trainer's process says
        self._error: str | None = None
        self._exit_status: int | None = None
        self._trainer: Trainer | None = None
        self._begun = False
        self._setup_awaited = with_setup
        self._setup: tuple[Mapping[str, object], Mapping[str, str]] | None = None
        self._setup_failed = False
        self._setup_s: float | None = None
        self._asked = threading.Event()
        _register(instance_dir, Path(run_dir).name, self._control.path)
        threading.Thread(target=self._listen, args=[instance_dir], daemon=True).start()

    def set_up(self, setup: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Let the trainer set its environment up (trainers.spec.SetupSpec), once; asked again it does nothing."""
        if self._setup is None:
            self._setup = (setup, secrets)
            self._asked.set()

    def train(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Let the prepared trainer begin, once: asked again (by an engine that crashed in between) it does nothing."""
        if not self._begun:
            assert self._trainer is not None, "the trainer is not prepared"
            self._begun = True
            self._trainer.order(spec, secrets)

    def report(self) -> dict[str, object]:
        """The fields of trainers.control.Progress, `still_s` and `exit_status`; before there are any, just the state,
        with `setup_failed` where that is why, and `setup_s`, the seconds that a set-up took.

        `still_s`: for so long what is awaited was due, and did not come.
        """
        try:
            progress = self._control.progress()
        except MalformedMessage as error:
            return self._malformed(error)
        reported = {} if progress is None else _told(progress)
        if self._error is not None:
            return {**reported, "state": "failed", "error": self._error, "setup_failed": self._setup_failed}
        if progress is not None and progress.state in _LAST:
            return reported
        if self._state == "absent" and self._exit_status is not None:
            died = {"error": describe_exit(self._exit_status), "exit_status": self._exit_status}
            return {**reported, "state": "failed", **died}
        if self._state == "absent":
            return {**reported, "state": "absent"}
        if progress is None:
            state = "starting" if self._begun and self._state == "prepared" else self._state
            return {"state": state, "setup_s": self._setup_s}
        return reported

    def _malformed(self, error: MalformedMessage) -> dict[str, object]:
        """Its process may be over all the same."""
        if self._error is not None:
            return {"state": "failed", "error": self._error}
        if self._state == "absent" and self._exit_status is not None:
            return {"state": "failed", "error": describe_exit(self._exit_status), "exit_status": self._exit_status}
        return {"state": "absent"} if self._state == "absent" else {"state": "malformed", "error": str(error)}

    def control(self, what: Control, quiesce: Mapping[str, Any] | None = None) -> None:
        """Write or remove a request in the control directory; `quiesce` has the fields of
        trainers.control.QuiesceOrder."""
        if what == "quiesce" and quiesce is not None:
            self._control.put_quiesce(decode(QuiesceOrder, quiesce))
        elif what == "resume":
            self._control.clear_quiesce()
        elif what == "stacks":
            if self._begun and self._trainer is not None:
                self._trainer.show_stacks()
        else:
            self._control.request_stop()

    def _listen(self, instance_dir: Path) -> None:
        """Believe the trainer's process, until it is gone."""
        while self._trainer is None:
            try:
                self._trainer = Trainer(instance_dir)
            except OSError:  # the node is about to start it
                time.sleep(LOOK_EVERY_S)
        began_s: float | None = None
        with suppress(OSError):  # cut off by its death
            for said in self._trainer.messages():
                if self._setup_awaited and said.state == "prepared":
                    self._setup_awaited = False
                    self._asked.wait()
                    assert self._setup is not None
                    self._trainer.set_up(*self._setup)
                    began_s = time.monotonic()
                    continue
                if began_s is not None:
                    self._setup_s, self._setup_failed = time.monotonic() - began_s, said.state == "failed"
                    began_s = None
                self._state, self._error = said.state, said.error
        give_up_s = time.monotonic() + EXIT_STATUS_S
        while self._begun and time.monotonic() < give_up_s:
            if (status := exit_status(instance_dir)) is not None:
                self._exit_status = status
                break
            time.sleep(LOOK_EVERY_S)
        self._state = "absent"


def _told(progress: Progress) -> dict[str, object]:
    reported = dataclasses.asdict(progress)
    since_s = reported.pop("still_since_s")
    return {**reported, "still_s": 0.0 if since_s is None else max(0.0, time.monotonic() - since_s)}


def _register(instance_dir: Path, run_id: str, control_dir: Path) -> None:
    """Tell the node's agent of a run: it carries notices to it and renews its lease."""
    runs = instance_dir / "runs"
    runs.mkdir(exist_ok=True)
    partial = instance_dir / f"{run_id}.registration"
    partial.write_text(str(control_dir))
    partial.rename(runs / run_id)
