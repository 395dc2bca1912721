"""A real zombie: its raylet is dead and its agent stopped, its actor and trainer go on, and another generation owns the
job. Everything is looked at from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.model import Run
from tests.e2e.living import Tradewind, alive, named, until
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.control import ControlDirectory

STEPS_BEFORE = 10
STEPS_AFTER = 3
FAR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Zombie:
    """What became of one. `steps` it made after its raylet was dead, `slipped` are its checkpoints that came after the
    fence (the check before a commit cannot be atomic), `successor` the run that took over, and from which step it had
    to start."""

    run: Run
    steps: int
    end: str
    slipped: int
    successor: Run
    owed_step: int

    @property
    def restored(self) -> bool:
        """Whether anything of it was restored that came after the fence."""
        return self.successor.start_step != self.owed_step


def let_one_rise(home: Tradewind, job: str, after: Run | None) -> Zombie:
    """Kill the raylet alone, with nobody to notice; hand the job to the next generation as CUTOVER does; then let the
    control plane see what there is."""
    run = home.training(job, after=after, steps=STEPS_BEFORE)
    root = home.state / "checkpoints"
    control = ControlDirectory(home.installation.run_dir(run.id) / "control")
    with _stopped(home.leader_pid), _stopped(home.agent(run)):
        control.put_lease(time.monotonic() + FAR_S)  # or it would stop by itself
        raylet = named(home.processes(run), "raylet/raylet")
        os.kill(raylet, signal.SIGKILL)
        until("its raylet is dead", lambda: not alive(raylet))
        reached = home.step(run)
        until("it trains on without", lambda: home.step(run) >= reached + STEPS_AFTER)
        newest = store.newest_counting(root, job, run.generation + 1)
        assert newest is not None
        before = set(store.manifests(root, job))
        store.write_fence(root, job, run.generation + 1, newest)
        reported = until(
            "it has ended by itself", lambda: (said := control.progress()) and said.state != "training" and said
        )
        slipped = set(store.manifests(root, job)) - before
    successor = home.training(job, after=run, steps=1)
    owed = ManifestName.parse(newest).step
    return Zombie(run, reported.step - reached, reported.state, len(slipped), successor, owed)


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
