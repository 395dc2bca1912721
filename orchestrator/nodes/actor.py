"""RunActor: the Ray actor that drives one run on its rented machine.

The run itself is a separate process, which the agent started as soon as the machine was up (trainers.process.prewarm),
so it loads its libraries while Ray starts, and the program has its own process. The actor passes it the order and
answers for it from the control directory. If either dies, the other ends, too. A trainer that dies by itself while it
executes its order, on a machine that stays alive, has failed: its parent, the agent, reports how it ended. Without that
report the trainer counts as lost, like one whose actor or machine died first.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainers.control import ControlDirectory, Progress
from trainers.errors import MalformedMessage
from trainers.process.prewarm import Trainer, describe_exit, exit_status

ACTOR_THREADS = 4
LOOK_EVERY_S = 0.05
EXIT_STATUS_S = 10.0  # the agent checks ten times a second; without its report the trainer counts as lost

LAST = ("finished", "failed", "checkpointed_and_stopped", "fenced")


class RunActor:
    """Drives one run."""

    def __init__(self, run_dir: str, with_setup: bool = False) -> None:
        """`with_setup`: the run is not prepared before `set_up` has finished."""
        instance_dir = Path(os.environ["TRADEWIND_INSTANCE_DIR"])
        self._control = ControlDirectory(Path(run_dir) / "control")
        self._control.path.mkdir(parents=True, exist_ok=True)
        self._state = "starting"  # as reported by the trainer's process
        self._error: str | None = None
        self._exit_status: int | None = None
        self._trainer: Trainer | None = None
        self._ordering = threading.Lock()
        self._order: tuple[Mapping[str, object], Mapping[str, str]] | None = None
        self._begun = False
        self._setup_awaited = with_setup
        self._setup: tuple[Mapping[str, object], Mapping[str, str]] | None = None
        self._setup_failed = False
        self._setup_s: float | None = None
        self._asked = threading.Event()
        threading.Thread(target=self._listen, args=[instance_dir], daemon=True).start()

    def set_up(self, setup: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Set the trainer's environment up (trainers.spec.SetupSpec). Repeated calls do nothing."""
        if self._setup is None:
            self._setup = (setup, secrets)
            self._asked.set()

    def train(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Start training as soon as the trainer is prepared. Repeated calls do nothing."""
        with self._ordering:
            if self._order is None:
                self._order = (spec, secrets)
                if self._state == "prepared":
                    self._begin()

    def _begin(self) -> None:
        assert self._trainer is not None
        assert self._order is not None
        self._begun = True
        with suppress(OSError):  # it has died: `_listen` finds out
            self._trainer.order(*self._order)

    def report(self) -> dict[str, object]:
        """The fields of trainers.control.Progress, `still_s` and `exit_status`. Before the first progress: only the
        state, with `setup_failed` if the set-up failed, and `setup_s`, the duration of the set-up in seconds.

        `still_s`: how long the awaited event (start, step, save, end) has been overdue.
        """
        try:
            progress = self._control.progress()
        except MalformedMessage as error:
            return self._malformed(error)
        reported = {} if progress is None else _fields(progress)
        if self._error is not None:
            return {**reported, "state": "failed", "error": self._error, "setup_failed": self._setup_failed}
        if progress is not None and progress.state in LAST:
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
        """The report for invalid progress: the process may also have ended."""
        if self._error is not None:
            return {"state": "failed", "error": self._error}
        if self._state == "absent" and self._exit_status is not None:
            return {"state": "failed", "error": describe_exit(self._exit_status), "exit_status": self._exit_status}
        return {"state": "absent"} if self._state == "absent" else {"state": "malformed", "error": str(error)}

    def show_stacks(self) -> None:
        """Make a training run write the stacks of all its threads to its log."""
        if self._begun and self._trainer is not None:
            self._trainer.show_stacks()

    def _listen(self, instance_dir: Path) -> None:
        """Watch the trainer's process until it is gone."""
        while self._trainer is None:
            try:
                self._trainer = Trainer(instance_dir)
            except OSError:  # the node is about to start it
                time.sleep(LOOK_EVERY_S)
        began_s: float | None = None
        with suppress(OSError):  # it died
            for message in self._trainer.messages():
                if self._setup_awaited and message.state == "prepared":
                    self._setup_awaited = False
                    self._asked.wait()
                    assert self._setup is not None
                    self._trainer.set_up(*self._setup)
                    began_s = time.monotonic()
                    continue
                if began_s is not None:
                    self._setup_s, self._setup_failed = time.monotonic() - began_s, message.state == "failed"
                    began_s = None
                with self._ordering:
                    self._state, self._error = message.state, message.error
                    if message.state == "prepared" and self._order is not None:
                        self._begin()
        give_up_s = time.monotonic() + EXIT_STATUS_S
        while self._begun and time.monotonic() < give_up_s:
            if (status := exit_status(instance_dir)) is not None:
                self._exit_status = status
                break
            time.sleep(LOOK_EVERY_S)
        self._state = "absent"


def _fields(progress: Progress) -> dict[str, object]:
    reported = dataclasses.asdict(progress)
    since_s = reported.pop("still_since_s")
    return {**reported, "still_s": 0.0 if since_s is None else max(0.0, time.monotonic() - since_s)}
