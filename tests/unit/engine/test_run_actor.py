"""RunActor without Ray: what it reports of a trainer's process that dies, and what it takes the agent's word for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.engine.site import actor
from orchestrator.engine.site.actor import RunActor
from trainers.waiting import write_exit_status

PATIENCE_S = 60.0
TRAINER = """
import os, pathlib, socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("trainer.sock")
listener.listen(1)
connection, _ = listener.accept()
connection.sendall(b'{"state": "prepared", "error": null}\\n')
pathlib.Path("order.read").write_bytes(connection.recv(1 << 16))
os.fork()  # a child that keeps the line open
time.sleep(1000)
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers its driver as trainers.waiting does, without loading torch for it."""
    monkeypatch.setenv("TRADEWIND_INSTANCE_DIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-S", "-c", TRAINER], cwd=tmp_path, start_new_session=True) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def until(look: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def begun(folder: Path) -> RunActor:
    """Its driver, and a trainer that has read its order and trains."""
    driver = RunActor(str(folder / "run"))
    until(lambda: driver.report()["state"] == "prepared")
    driver.train({}, {})
    until((folder / "order.read").exists)
    says(folder, state="training", step=3, still_since_s=time.monotonic() - 40.0)
    return driver


def says(folder: Path, **progress: object) -> None:
    path = folder / "run" / "control" / "progress.json"
    path.with_suffix(".partial").write_text(json.dumps(progress))
    path.with_suffix(".partial").replace(path)


def kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait()


def test_a_trainer_that_dies_has_failed_as_soon_as_the_agent_tells_how_it_ended(
    tmp_path: Path, trainer: subprocess.Popen[bytes]
) -> None:
    driver = begun(tmp_path)
    kill(trainer, signal.SIGSEGV)
    assert driver.report()["state"] == "training"  # nobody knows yet
    write_exit_status(tmp_path, trainer.returncode)
    until(lambda: driver.report()["state"] != "training")
    report = driver.report()
    assert (report["state"], report["exit_status"], report["step"]) == ("failed", -11, 3)
    assert report["error"] == "the trainer was killed by signal 11 (segmentation fault)"


def test_a_trainer_of_which_nobody_tells_how_it_ended_is_absent(
    tmp_path: Path, trainer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "EXIT_STATUS_S", 0.0)
    driver = begun(tmp_path)
    kill(trainer, signal.SIGKILL)
    until(lambda: driver.report()["state"] == "absent")
    assert driver.report()["step"] == 3


def test_a_trainer_that_dies_before_its_order_is_absent_for_no_code_of_a_job_ran_in_it(
    tmp_path: Path, trainer: subprocess.Popen[bytes]
) -> None:
    driver = RunActor(str(tmp_path / "run"))
    until(lambda: driver.report()["state"] == "prepared")
    write_exit_status(tmp_path, -9)
    kill(trainer, signal.SIGKILL)
    until(lambda: driver.report()["state"] == "absent")


def test_a_trainer_that_has_had_its_last_word_may_die_as_it_likes(
    tmp_path: Path, trainer: subprocess.Popen[bytes]
) -> None:
    driver = begun(tmp_path)
    says(tmp_path, state="yielded", step=4)
    write_exit_status(tmp_path, 1)
    kill(trainer, signal.SIGKILL)
    until(lambda: driver.report()["state"] == "yielded")
    assert driver.report()["error"] is None


def test_how_long_a_step_has_been_due_is_measured_on_the_machine_of_the_trainer(
    tmp_path: Path, trainer: subprocess.Popen[bytes]
) -> None:
    driver = begun(tmp_path)
    still_s = driver.report()["still_s"]
    assert isinstance(still_s, float)
    assert still_s >= 40.0
    says(tmp_path, state="holding", step=4)
    until(lambda: driver.report()["still_s"] == 0.0)
    assert trainer.poll() is None


def test_a_progress_file_of_garbage_is_a_malformed_report_and_its_trainers_end_is_still_told(
    tmp_path: Path, trainer: subprocess.Popen[bytes]
) -> None:
    driver = begun(tmp_path)
    says(tmp_path, state="training", step=10**30)
    report = driver.report()
    assert report["state"] == "malformed"
    assert "progress.json: step is" in str(report["error"])
    kill(trainer, signal.SIGKILL)
    write_exit_status(tmp_path, trainer.returncode)
    until(lambda: driver.report()["state"] == "failed")
    assert driver.report()["exit_status"] == -9
