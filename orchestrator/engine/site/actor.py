"""RunActor: the Ray actor that drives one run on its rented node.

The run itself is a process beside it, which the node started as soon as the machine was up (trainers.waiting): so it
loads its libraries while Ray still comes up, and a program has its process to itself. The actor hands it the order and
answers for it from the control directory; if either dies, so does the other's part in the run. The same actor serves
this host and remote sites. Must not know: policies, prices, the store.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from trainers.control import ControlDirectory
from trainers.waiting import Trainer

ACTOR_THREADS = 4
LOOK_EVERY_S = 0.05

Control = Literal["hold", "unhold", "stop"]


class RunActor:
    """Created detached and named by its run id, on the node with the run's resource label."""

    def __init__(self, run_dir: str) -> None:
        instance_dir = Path(os.environ["TRADEWIND_INSTANCE_DIR"])
        self._control = ControlDirectory(Path(run_dir) / "control")
        self._control.path.mkdir(parents=True, exist_ok=True)
        self._state = "starting"  # as the trainer's process says
        self._error: str | None = None
        self._trainer: Trainer | None = None
        self._begun = False
        _register(instance_dir, Path(run_dir).name, self._control.path)
        threading.Thread(target=self._listen, args=[instance_dir], daemon=True).start()

    def train(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Let the prepared trainer begin, once: asked again (by an engine that crashed in between) it does nothing."""
        if not self._begun:
            assert self._trainer is not None, "the trainer is not prepared"
            self._begun = True
            self._trainer.order(spec, secrets)

    def report(self) -> dict[str, object]:
        """The fields of trainers.control.Progress; before there is any, just the state."""
        progress = self._control.progress()
        if self._error is not None:
            told = dataclasses.asdict(progress) if progress is not None else {}
            return {**told, "state": "failed", "error": self._error}
        if progress is None:
            return {"state": "starting" if self._begun and self._state == "prepared" else self._state}
        if self._state == "absent" and progress.state not in ("finished", "failed", "yielded", "fenced"):
            return {**dataclasses.asdict(progress), "state": "absent"}
        return dataclasses.asdict(progress)

    def control(self, what: Control, until_monotonic_s: float = 0.0) -> None:
        """Write or remove a request in the control directory."""
        if what == "hold":
            self._control.put_hold(until_monotonic_s)
        elif what == "unhold":
            self._control.clear_hold()
        else:
            self._control.request_stop()

    def _listen(self, instance_dir: Path) -> None:
        """Believe the trainer's process, until it is gone."""
        while self._trainer is None:
            try:
                self._trainer = Trainer(instance_dir)
            except OSError:  # the node is about to start it
                time.sleep(LOOK_EVERY_S)
        for said in self._trainer.words():
            self._state, self._error = said["state"], said["error"]
        self._state = "absent"


def _register(instance_dir: Path, run_id: str, control_dir: Path) -> None:
    """Tell the node's agent of a run: it carries notices to it and renews its lease."""
    runs = instance_dir / "runs"
    runs.mkdir(exist_ok=True)
    partial = instance_dir / f"{run_id}.registration"
    partial.write_text(str(control_dir))
    partial.rename(runs / run_id)
