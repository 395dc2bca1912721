"""What a trainer leaves running when it ends: nothing of it may live on beside the next run on the same machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.nodes.agent import Machine
from providers.procfs import process_start
from tests.unit.nodes.conftest import until

# A child with a session, an environment and a parent of its own, as a daemon has them; and a writer of the last words.
LEAVES_A_DAEMON = """
import os, subprocess, sys, time
daemon = "import os, time; open('daemon', 'w').write(str(os.getpid())); time.sleep(3600)"
detached = "start_new_session=True, env={}"
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {daemon!r}], {detached})"
pump = "import sys, time; data = sys.stdin.read(); time.sleep(0.2); open('last words', 'w').write(data)"
read, write = os.pipe()
subprocess.Popen([sys.executable, "-S", "-c", pump, "-m", "trainers.process.log_pump"], stdin=read, cwd=sys.argv[1])
os.write(write, b"said at the end")
subprocess.run([sys.executable, "-S", "-c", middle], cwd=sys.argv[1], check=True)
while not os.path.exists("daemon"):
    time.sleep(0.01)
if sys.argv[2] == "stays":
    time.sleep(3600)
"""


class Leaving(Machine):
    """Its trainers start a daemon; `after` says whether they then end by themselves."""

    after = "ends"

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", LEAVES_A_DAEMON, str(self.folder), self.after]


@pytest.fixture(params=["ends", "stays"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaving]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Leaving, "after", request.param)
    machine = Leaving(tmp_path)
    yield machine
    machine.end()


def _daemon(folder: Path) -> int:
    until("the daemon has started", lambda: (folder / "daemon").exists() and (folder / "daemon").read_text())
    return int((folder / "daemon").read_text())


def test_the_next_run_starts_alone(machine: Leaving, tmp_path: Path) -> None:
    left = _daemon(tmp_path)
    assert process_start(left) is not None
    (tmp_path / "daemon").unlink()
    machine.renew()
    assert process_start(left) is None, "a process of the former run lives on"
    assert process_start(_daemon(tmp_path)) is not None, "a process of the next run was ended"


def test_what_a_trainer_that_has_ended_left_is_ended_at_once_and_its_last_words_are_kept(
    machine: Leaving, tmp_path: Path
) -> None:
    left = _daemon(tmp_path)
    if Leaving.after == "stays":
        machine.look(blameless=True)
        assert process_start(left) is not None, "the run has not ended"
        machine.process.kill()
    machine.process.wait()
    machine.look(blameless=True)
    assert process_start(left) is None
    assert (tmp_path / "last words").read_text() == "said at the end"
