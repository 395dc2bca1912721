"""The script around the user data of a cloud's machine, run by a real shell in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from providers.machine.user_data import script


class Machine:
    """Runs the script. Its /run is `run`, its home `home`, and to shut down it writes to `log`."""

    def __init__(self, folder: Path) -> None:
        self.run, self.home, self.log, self.work_ends = (folder / name for name in ("run", "home", "log", "fifo"))
        os.mkfifo(self.work_ends)
        self.run.mkdir()
        work = f"echo works >> {self.log}; read -r line < {self.work_ends}"
        text = script("aws", work, None).replace("/run/tradewind", str(self.run / "tradewind"))
        self.text = text.replace("HOME=/root", f"HOME={self.home}").replace(
            "shutdown -h now", f"echo off >> {self.log}"
        )

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/bin/bash", "-c", self.text], stderr=subprocess.DEVNULL)

    def said(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_user_data_that_runs_twice_works_once_and_the_machine_ends_with_the_first(machine: Machine) -> None:
    first = machine.start()
    with machine.work_ends.open("w") as ends:  # opened when the work reads from it
        assert machine.start().wait(timeout=60) == 0
        assert machine.said() == ["works"]
        ends.write("\n")
    first.wait(timeout=60)
    assert machine.said() == ["works", "off"]


def test_after_a_reboot_it_runs_again(machine: Machine) -> None:
    """Its agent then sees that the machine has started before, and ends it (tests/unit/nodes/test_agent.py)."""
    for _ in range(2):
        started = machine.start()
        machine.work_ends.write_text("\n")
        started.wait(timeout=60)
        (machine.run / "tradewind" / "work").unlink()
        (machine.run / "tradewind").rmdir()
    assert machine.said() == ["works", "off"] * 2


def test_a_machine_that_cannot_keep_its_files_ends(machine: Machine) -> None:
    """Nothing would end it later."""
    machine.run.rmdir()
    assert machine.start().wait(timeout=60) == 0
    assert machine.said() == ["off"]
