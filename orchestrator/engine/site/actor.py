"""RunActor: the Ray actor that executes one run on its rented node.

`train` blocks for the whole run, in one thread of the actor; the other methods answer meanwhile from the control
directory. The same actor serves this host and remote sites. Must not know: policies, prices, the store.
"""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

ACTOR_THREADS = 4  # train + report + control + one to spare

Control = Literal["hold", "unhold", "stop"]


class RunActor:
    """Created detached and named by its run id, on the node with the run's resource label."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = Path(run_dir)
        self._control_dir = self._run_dir / "control"
        self._control_dir.mkdir(parents=True, exist_ok=True)
        self._state = "starting"
        self._error: str | None = None
        self._begun = False
        instance_dir = os.environ.get("TRADEWIND_INSTANCE_DIR")
        if instance_dir is not None:
            runs = Path(instance_dir) / "runs"
            runs.mkdir(exist_ok=True)
            partial = Path(instance_dir) / f"{self._run_dir.name}.registration"
            partial.write_text(str(self._control_dir))
            partial.rename(runs / self._run_dir.name)

    def prepare(self) -> None:
        """Load what every trainer needs, so that `train` begins at once: most of a cold start is imports."""
        try:
            import torch

            # the first optimizer imports torch._dynamo and sympy: seconds
            torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
        except Exception:
            self._state, self._error = "failed", traceback.format_exc()
        else:
            self._state = "prepared"

    def train(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> str:
        """Execute the run to its end, once: asked again (by an engine that crashed in between) it does nothing.

        Returns the trainer's state.
        """
        if self._begun:
            return self._state
        self._begun = True
        from trainers.runner import execute
        from trainers.spec import TrainerSpec

        self._state = "training"
        os.environ.update(secrets)
        try:
            self._state = execute(TrainerSpec.from_json(spec))
        except BaseException:
            self._state, self._error = "failed", traceback.format_exc()
            traceback.print_exc()
        return self._state

    def report(self) -> dict[str, object]:
        """The fields of trainers.control.Progress; before there is any, just the state."""
        from trainers.control import ControlDirectory

        progress = ControlDirectory(self._control_dir).progress()
        if progress is None:
            return {"state": "starting" if self._state == "training" else self._state, "error": self._error}
        if self._error is not None:
            return {**dataclasses.asdict(progress), "state": "failed", "error": self._error}
        return dataclasses.asdict(progress)

    def control(self, what: Control, until_monotonic_s: float = 0.0) -> None:
        """Write or remove a request in the control directory."""
        from trainers.control import ControlDirectory

        directory = ControlDirectory(self._control_dir)
        if what == "hold":
            directory.put_hold(until_monotonic_s)
        elif what == "unhold":
            directory.clear_hold()
        else:
            directory.request_stop()
