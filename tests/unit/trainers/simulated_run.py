"""A run of one small program in this process, in virtual time."""

from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from trainers.checkpoint import store
from trainers.control import ControlDirectory
from trainers.journal import Journal
from trainers.loop.session import attach
from trainers.process.run_context import RunContext, RunEnded, Timers, opened
from trainers.spec import TrainerSpec

JOB = "job-1"


class SimulatedRun:
    """A run of a job whose program takes `step_s` of wall and CPU time a step, on a clock that only it moves."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.now = 1000.0
        self.cpu = 0.0
        self.step_s = 0.1
        self.save_s = 0.0
        self.slept: list[float] = []
        self.at: list[tuple[float, object]] = []  # (instant, action), done while the run sleeps
        self.trained: list[int] = []
        self.states: list[str] = []
        self.due_s: dict[str, list[float | None]] = {"step": [], "save": [], "quiesce": []}  # as seen from outside
        fields = {"generation": 1, "steps": 30, "keep": 100} | changes
        run = root / f"run-{fields['generation']}"
        self.spec = TrainerSpec(
            job_id=JOB,
            run_id=run.name,
            attempt=0,
            checkpoint_root=str(root / "checkpoints"),
            control_dir=str(run / "control"),
            output_dir=str(root / "out"),
            workdir=".",
            **fields,  # type: ignore[arg-type]
        )
        self.root = root / "checkpoints"
        self.control = ControlDirectory(self.spec.control_dir)
        self.model: Any = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(self.model.weight)

    def sleep(self, wall_s: float) -> None:
        self.slept.append(wall_s)
        self.states.append(self.progress().state)
        self.due_s["quiesce"].append(self.progress().still_since_s)
        self.now += wall_s
        for due, action in [entry for entry in self.at if entry[0] <= self.now]:
            self.at.remove((due, action))
            action()  # type: ignore[operator]

    def progress(self):
        return self.control.progress()

    def train(self, before_step=None, leave_every=1000, **parts: object) -> str:
        """Train to the end of the run, leaving the loop and coming back so often; returns its last state."""
        timers = Timers(monotonic=lambda: self.now, sleep=self.sleep, cpu=lambda: self.cpu)
        journal = Journal(self.control, timers.monotonic)
        context = RunContext(self.spec, self.control, journal, timers)
        with closing(journal), opened(context):
            try:
                run = attach(model=self.model, optimizer=self, extra={"clock": self}, **parts)
                while True:
                    for _ in run.batches():
                        self._step(run, before_step)
                        if run.steps_done % leave_every == 0:
                            break
                    else:
                        break
                context.session.finish()
            except RunEnded as end:
                journal.enter(end.state)
        return self.progress().state

    def _step(self, run, before_step) -> None:
        self.due_s["step"].append(self.progress().still_since_s)
        if before_step is not None:
            before_step(run.steps_done)
        with torch.no_grad():
            self.model.weight += 1
        self.trained.append(run.steps_done + 1)
        self.now += self.step_s
        self.cpu += self.step_s
        run.step(self.model.weight.sum())

    # As an optimizer without state, whose capture is where a save spends its time.
    def state_dict(self) -> dict[str, int]:
        self.now += self.save_s / 2
        self.due_s["save"].append(self.progress().still_since_s)
        assert self.progress().awaited == "save"
        return {}

    def load_state_dict(self, state: object) -> None:
        assert state == {}


def names(run):
    return [str(name) for name in store.manifests(run.root, JOB)]
