"""RunActor without Ray: what it reports of a trainer's process that dies, and what it takes the agent's word for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.nodes import actor
from orchestrator.nodes.actor import RunActor
from trainers.process.prewarm import PrewarmReply, Trainer, write_exit_status

PATIENCE_S = 60.0
TRAINER = """
import os, signal, socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("trainer.sock")
listener.listen(1)
connection, _ = listener.accept()
connection.sendall(b'{"state": "prepared", "error": null}\\n')
connection.recv(1 << 16)
connection.sendall(b'{"state": "training", "error": null}\\n')
os.fork()  # a child that keeps the line open
signal.pause()
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers its driver as trainers.process.prewarm does, without loading torch for it."""
    monkeypatch.setenv("TRADEWIND_INSTANCE_DIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-S", "-c", TRAINER], cwd=tmp_path, start_new_session=True) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class Driver:
    """A RunActor, and what its thread has come to: `heard` counts the words that it has taken in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.heard = threading.Semaphore(0)
        self._over = threading.Event()
        driver = self

        class Line(Trainer):
            def messages(self) -> Generator[PrewarmReply, None, None]:
                for word in super().messages():
                    yield word
                    driver.heard.release()  # the next one is asked for: this one has been taken in

        class Listening(RunActor):
            def _listen(self, instance_dir: Path) -> None:
                super()._listen(instance_dir)
                driver._over.set()

        monkeypatch.setattr(actor, "Trainer", Line)
        self.actor = Listening(str(folder / "run"))
        assert self.heard.acquire(timeout=PATIENCE_S)

    def report(self) -> dict[str, object]:
        return self.actor.report()

    def begin(self) -> None:
        """Give the order, and wait until the trainer has read it and trains."""
        self.actor.train({}, {})
        assert self.heard.acquire(timeout=PATIENCE_S)
        says(self.folder, state="training", step=3, still_since_s=time.monotonic() - 40.0)

    def await_its_end(self) -> None:
        assert self._over.wait(PATIENCE_S)


@pytest.fixture
def driver(tmp_path: Path, trainer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Of a trainer that is prepared."""
    return Driver(tmp_path, monkeypatch)


def says(folder: Path, **progress: object) -> None:
    path = folder / "run" / "control" / "progress.json"
    path.with_suffix(".partial").write_text(json.dumps(progress))
    path.with_suffix(".partial").replace(path)


def kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait()


def test_a_trainer_that_dies_has_failed_as_soon_as_the_agent_tells_how_it_ended(
    tmp_path: Path, trainer: subprocess.Popen[bytes], driver: Driver
) -> None:
    driver.begin()
    kill(trainer, signal.SIGSEGV)
    assert driver.report()["state"] == "training"  # nobody knows yet
    write_exit_status(tmp_path, trainer.returncode)
    driver.await_its_end()
    report = driver.report()
    assert (report["state"], report["exit_status"], report["step"]) == ("failed", -11, 3)
    assert report["error"] == "the trainer was killed by signal 11 (segmentation fault)"


def test_a_trainer_without_a_report_of_its_end_is_absent(
    trainer: subprocess.Popen[bytes], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "EXIT_STATUS_S", 0.0)
    driver.begin()
    kill(trainer, signal.SIGKILL)
    driver.await_its_end()
    assert driver.report()["state"] == "absent"
    assert driver.report()["step"] == 3


def test_a_trainer_that_dies_before_its_order_is_absent_for_no_code_of_a_job_ran_in_it(
    tmp_path: Path, trainer: subprocess.Popen[bytes], driver: Driver
) -> None:
    assert driver.report()["state"] == "prepared"
    write_exit_status(tmp_path, -9)
    kill(trainer, signal.SIGKILL)
    driver.await_its_end()
    assert driver.report()["state"] == "absent"


def test_a_trainer_that_has_had_its_last_word_may_die_as_it_likes(
    tmp_path: Path, trainer: subprocess.Popen[bytes], driver: Driver
) -> None:
    driver.begin()
    says(tmp_path, state="checkpointed_and_stopped", step=4)
    write_exit_status(tmp_path, 1)
    kill(trainer, signal.SIGKILL)
    driver.await_its_end()
    assert driver.report()["state"] == "checkpointed_and_stopped"
    assert driver.report()["error"] is None


def test_how_long_a_step_has_been_due_is_measured_on_the_machine_of_the_trainer(
    tmp_path: Path, trainer: subprocess.Popen[bytes], driver: Driver
) -> None:
    driver.begin()
    still_s = driver.report()["still_s"]
    assert isinstance(still_s, float)
    assert still_s >= 40.0
    says(tmp_path, state="quiesced", step=4)
    assert driver.report()["still_s"] == 0.0
    assert trainer.poll() is None


def test_a_garbage_progress_file_is_a_malformed_report_and_the_trainers_end_is_still_reported(
    tmp_path: Path, trainer: subprocess.Popen[bytes], driver: Driver
) -> None:
    driver.begin()
    says(tmp_path, state="training", step=10**30)
    assert driver.report()["state"] == "malformed"
    assert "progress.json: step is" in str(driver.report()["error"])
    kill(trainer, signal.SIGKILL)
    write_exit_status(tmp_path, trainer.returncode)
    driver.await_its_end()
    assert (driver.report()["state"], driver.report()["exit_status"]) == ("failed", -9)
