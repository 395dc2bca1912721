"""The trainer's process before it has an order, and the end of the line that its driver holds."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainers.checkpoint import store
from trainers.control import ControlDirectory
from trainers.spec import TrainerSpec
from trainers.waiting import Trainer

PATIENCE_S = 120.0
PROGRAM = """
import os, time, pathlib
def writes(name): pathlib.Path(name).write_text(os.environ["WORD"])
def lingers(): time.sleep(1000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Too deep for the name of a socket."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    (deep / "program.py").write_text(PROGRAM)
    return deep


@pytest.fixture
def process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-m", "trainers.waiting", str(folder)]) as waiting:
        yield waiting
        waiting.kill()


def connect(folder: Path) -> Trainer:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Trainer(folder)
        except OSError:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)


def spec(folder: Path, entry: str, **args: str) -> dict[str, object]:
    store.prepare(folder / "checkpoints", "job")
    store.write_fence(folder / "checkpoints", "job", 1, None)
    return TrainerSpec(
        job_id="job",
        run_id="run",
        generation=1,
        attempt=1,
        checkpoint_root=str(folder / "checkpoints"),
        control_dir=str(folder / "run" / "control"),
        output_dir=str(folder / "outputs"),
        workdir=str(folder),
        entry=f"program:{entry}",
        args=args,
        steps=1,
    ).to_json()


def test_it_waits_prepared_and_executes_one_order_with_its_secrets(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    trainer = connect(folder)
    words = trainer.words()
    assert next(words) == {"state": "prepared", "error": None}
    trainer.order(spec(folder, "writes", name="word"), {"WORD": "hush"})
    assert next(words) == {"state": "finished", "error": None}
    assert list(words) == []
    assert process.wait(PATIENCE_S) == 0
    assert (folder / "word").read_text() == "hush"
    told = ControlDirectory(folder / "run" / "control").progress()
    assert told is not None
    assert told.state == "finished"


def test_it_ends_when_its_driver_is_gone_whatever_it_does(folder: Path, process: subprocess.Popen[bytes]) -> None:
    trainer = connect(folder)
    words = trainer.words()
    assert next(words)["state"] == "prepared"
    trainer.order(spec(folder, "lingers"), {})
    words.close()
    assert process.wait(PATIENCE_S) == 1
