"""A stand-in for the trainer's process that answers at once, and a crew that drives it without Ray."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.nodes.actor import RunActor
from orchestrator.nodes.agent import Machine
from orchestrator.nodes.cluster import Cluster
from orchestrator.nodes.crew import Crew, Said

PATIENCE_S = 60.0
TRAINER = """
import json, os, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.chdir(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind("trainer.sock")
listener.listen(1)
connection, _ = listener.accept()
line = connection.makefile("rw")
line.write('{"state": "prepared", "error": null}\\n'); line.flush()
order = json.loads(line.readline() or "null")
if order is None:
    sys.exit(0)
open("order.json", "w").write(json.dumps(order))
control = order["spec"]["control_dir"]
open(control + "/.progress", "w").write('{"state": "training", "step": 3}')
os.rename(control + "/.progress", control + "/progress.json")
line.readline()  # until the driver is gone
"""


class Stub(Machine):
    """Starts the stand-in instead of a process that loads torch."""

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", TRAINER, str(self.folder)]


class Direct(Crew):
    """Calls the actor itself, in this process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Cluster(folder), lambda why: None)
        self.actor: RunActor | None = None
        self.run_id = ""
        self.ended: list[str] = []
        self.secrets: Mapping[str, str] = {}

    def begin(self, run_id: str, run_dir: str, *, with_setup: bool) -> None:
        self.run_id, self.actor = run_id, RunActor(run_dir, with_setup)

    def set_up(self, setup: Said, secrets: Mapping[str, str]) -> None:
        assert self.actor is not None
        self.actor.set_up(setup, secrets)

    def train(self, spec: Said, secrets: Mapping[str, str]) -> None:
        assert self.actor is not None
        self.secrets = secrets
        self.actor.train(spec, secrets)

    def end(self) -> None:
        if self.actor is not None:
            trainer: Any = self.actor._trainer
            if trainer is not None:
                trainer._socket.shutdown(2)
            self.ended.append(self.run_id)
            self.actor = None

    def heard(self, run_id: str) -> tuple[Said | None, float]:
        assert self.actor is None or run_id == self.run_id
        return (None if self.actor is None else self.actor.report()), 0.0


def until(what: str, look: Callable[[], object]) -> None:
    """Look until it is so."""
    give_up = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        time.sleep(0.005)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A machine with the stand-in."""
    folder = tmp_path / "instance"
    folder.mkdir()
    monkeypatch.setenv("TRADEWIND_INSTANCE_DIR", str(folder))
    monkeypatch.setenv("TRADEWIND_METADATA", str(folder / "metadata.json"))
    stub = Stub(folder)
    yield stub
    stub.end()


@pytest.fixture
def crew(tmp_path: Path) -> Direct:
    """A crew without Ray."""
    return Direct(tmp_path / "ray")
