"""A request that hangs on a host does not keep the later ones waiting for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from providers.static import turns
from providers.static.turns import turn

HOLD = """import sys, pathlib, signal
from providers.static.turns import turn
with turn(pathlib.Path(sys.argv[1])):
    print("mine", flush=True)
    signal.pause()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    process.stdout.close()
    os.kill(process.pid, signal.SIGSTOP)
    return process


def test_a_request_that_is_older_than_any_takes_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_S", 0.05)
    monkeypatch.setattr(turns, "LONGEST_S", 0.0)
    stopped = holder(tmp_path / "lock")
    with turn(tmp_path / "lock"):
        assert stopped.wait() == -signal.SIGKILL


def test_a_younger_one_is_waited_for_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_S", 0.05)
    monkeypatch.setattr(turns, "PATIENCE_S", 0.1)
    stopped = holder(tmp_path / "lock")
    with pytest.raises(TimeoutError, match=f"process {stopped.pid}"), turn(tmp_path / "lock"):
        pass
    stopped.kill()
    stopped.wait()
    with turn(tmp_path / "lock"):
        pass


def test_a_lock_file_that_names_nobody_is_no_reason_to_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_S", 0.05)
    monkeypatch.setattr(turns, "PATIENCE_S", 0.1)
    monkeypatch.setattr(turns, "LONGEST_S", 0.0)
    stopped = holder(tmp_path / "lock")
    (tmp_path / "lock").write_bytes(f"{stopped.pid} 1 of-another-boot".encode().ljust(128))
    with pytest.raises(TimeoutError), turn(tmp_path / "lock"):
        pass
    assert stopped.poll() is None
    stopped.kill()
    stopped.wait()
