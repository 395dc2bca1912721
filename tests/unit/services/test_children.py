"""What a user's program started while it was tried on this host ends with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from orchestrator.services.speed.children import ended_with_all
from providers.procfs import process_start

DETACHES = """
import subprocess, sys, time
own = [subprocess.Popen(["sleep", "77777"], start_new_session=True) for _ in range(2)]
own += [subprocess.Popen(["setsid", "env", "-i", "sleep", "77777"])]
open(sys.argv[1], "w").write(" ".join(str(each.pid) for each in own))
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("lasts_s", ["0", "77777"], ids=["ends by itself", "is cut off"])
def test_processes_that_left_its_session_end_too(tmp_path: Path, lasts_s: str) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    command = [sys.executable, "-S", "-c", DETACHES, str(pids), lasts_s]
    with open(tmp_path / "said", "wb") as said, ended_with_all(command, said) as child:
        started = [int(pid) for pid in pids.read_text().split()]  # once it has written them
        assert all(process_start(pid) is not None for pid in started)
        if lasts_s == "0":
            assert child.wait() == 0
    assert [process_start(pid) for pid in (child.pid, *started)] == [None] * 4
