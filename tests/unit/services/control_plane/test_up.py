"""`up`: who starts and leads, what outlives it, and the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.daemon import Daemon
from orchestrator.engine.node_runtime import NodeRuntime, node_runtime
from orchestrator.engine.secret_values import SecretValues
from orchestrator.errors import SiteError
from orchestrator.installation import open_installation
from orchestrator.services.control_plane import lifecycle
from orchestrator.services.secrets.file import FILE, kept_secrets

EIGHT_AT_ONCE = """
import os, sys, time
from pathlib import Path
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.services.control_plane import lifecycle

config = load_config({"state_dir": sys.argv[1], "providers.enabled": "fake"}, environ={})
start, go = os.pipe()
mine, results = os.pipe()
ended, end = os.pipe()

def child():
    os.close(go)
    os.close(end)
    os.read(start, 1)  # ends when everybody is there
    installation = open_installation(config, starts=True)

    def lead():
        os.write(results, b"started\\n")
        assert installation.store.campaign(f"process {os.getpid()}") is not None
        return installation.store.leader()

    leader = lifecycle.started_once(installation, lead)
    os.write(results, f"{leader.pid}\\n".encode())
    os.close(results)
    os.read(ended, 1)  # a leader that has died is none

for _ in range(8):
    if os.fork() == 0:
        try:
            child()
        finally:
            os._exit(0)
os.close(go)
os.close(results)
while said := os.read(mine, 65536):
    sys.stdout.write(said.decode())
"""


def test_of_eight_processes_that_want_a_control_plane_at_once_on_a_fresh_machine_one_starts_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EIGHT_AT_ONCE, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert said.count("started") == 1, done
    leaders = [line for line in said if line != "started"]
    assert (len(leaders), len(set(leaders))) == (8, 1), done


def test_processes_that_outlive_a_submitter_have_no_secret_of_a_job_in_their_environment(config: Config) -> None:
    path = config.state_dir.parent / "job.yaml"
    (path.parent / "train.py").write_text("def main(): pass\n")
    path.write_text(
        "name: secretive\n"
        "train: {entry: 'train:main', steps: 1, secrets: [TW_TOKEN, AWS_SECRET_ACCESS_KEY]}\nresources: {cpu: 1}\n"
    )
    given = {"TW_TOKEN": "of the job", "AWS_SECRET_ACCESS_KEY": "of the control plane, too", "PATH": "/bin"}
    kept = {"AWS_SECRET_ACCESS_KEY": "of the control plane, too", "PATH": "/bin"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in given.items():
            environment.setenv(name, value)
        with Client(config) as client:
            job = client.jobs.submit(path)
    with closing(open_installation(config)) as installation:
        assert lifecycle.environment_to_keep(installation, given) == kept
        with installation.store.write() as tx:
            tx.set_job_state(job.id, "cancelled")
        assert lifecycle.environment_to_keep(installation, given) == given


def test_a_control_plane_that_does_not_start_says_why(tmp_path: Path) -> None:
    settings = {"state_dir": str(tmp_path), "secrets.key_file": str(tmp_path / "secrets.key")}
    inside = load_config(settings, environ={}, cwd=tmp_path)
    with (
        closing(open_installation(inside)) as installation,
        pytest.raises(SiteError, match="in the state folder") as caught,
    ):
        lifecycle.start_in_background(installation, os.environ)
    assert "did not start: secrets.key_file" in str(caught.value)
    assert "control-plane.log" in caught.value.hint


def test_a_control_plane_in_the_background_leaves_where_another_one_lives_and_leads(config: Config) -> None:
    with closing(open_installation(config)) as installation, closing(open_installation(config)) as other:
        assert other.store.campaign("another one") is not None
        daemon = Daemon(installation, node_runtime(installation), SecretValues(), stands_by=False)
        assert daemon.run(once=False) == 0
        leader = installation.store.leader()
        assert leader is not None
        assert leader.holder == "another one"


def test_a_control_plane_that_takes_over_reads_the_kept_secrets_again_and_leads_also_where_it_cannot(
    config: Config, tmp_path: Path
) -> None:
    config = replace(config, secrets=replace(config.secrets, key_file=tmp_path / "key"))
    with closing(open_installation(config)) as installation:
        standing_by = kept_secrets(config)
        kept_secrets(config).give({"job_1": {"TW_TOKEN": "of the job"}})
        assert Daemon(installation, node_runtime(installation), standing_by).run(once=True) == 0
        assert standing_by.mask("of the job") == "[secret TW_TOKEN]"
        (config.state_dir / FILE).write_text("damaged")
        assert Daemon(installation, node_runtime(installation), standing_by).run(once=True) == 0
        assert standing_by.mask("of the job") == "[secret TW_TOKEN]"


def test_a_control_plane_on_a_store_from_a_backup_leads_with_a_later_epoch_than_those_that_gave_orders_since(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    led: list[int] = []
    monkeypatch.setattr(NodeRuntime, "lead", lambda _, epoch: led.append(epoch))
    monkeypatch.setattr(NodeRuntime, "outranked_by", property(lambda _: 41 if led[-1] <= 41 else None))
    with closing(open_installation(config)) as installation:
        assert Daemon(installation, node_runtime(installation), SecretValues()).run(once=True) == 0
    assert len(led) == 2
    assert led[0] < led[1] == 42


LOGS = """
import os, sys
from pathlib import Path
from orchestrator.config.private import append_privately
from orchestrator.services.control_plane.background_log import ControlPlaneLog

path = Path(sys.argv[1])
with append_privately(path) as file:  # as `up` starts a control plane
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
log = ControlPlaneLog(path, limit_bytes=2000)
for number in range(200):
    log.say(f"line {number} " + "x" * 50)
os.write(2, b"last words, past everything\\n")
print("said to stdout")
"""


def test_the_log_of_a_control_plane_stays_small_and_last_words_still_land_in_it(tmp_path: Path) -> None:
    path = tmp_path / "control-plane.log"
    subprocess.run([sys.executable, "-c", LOGS, str(path)], check=True)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["control-plane.log", "control-plane.log.1", "control-plane.log.2"]
    assert all(each.stat().st_size < 2200 for each in files)
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    newest = path.read_text()
    assert "line 199 " in newest
    assert "last words, past everything\n" in newest
    assert "said to stdout\n" in newest
    lines = [line.split()[2] for each in reversed(files) for line in each.read_text().splitlines() if " line " in line]
    assert lines == [str(number) for number in range(int(lines[0]), 200)]


ROTATOR = """
import os, signal, sys
from pathlib import Path
from orchestrator.config.private import append_privately
from orchestrator.services.control_plane.background_log import ControlPlaneLog

path, name, begin, end, sleeps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
with append_privately(path) as file:
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
same = os.path.samestat

def asleep(*stats):
    found = same(*stats)
    if sleeps:
        sleeps.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
    return found

os.path.samestat = asleep
log = ControlPlaneLog(path, limit_bytes=2000)
for number in range(begin, end):
    log.say(f"line {name}{number} " + "x" * 60)
"""


def test_of_two_that_set_the_log_aside_at_once_one_waits_and_no_line_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "control-plane.log"

    def rotator(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ROTATOR, str(path), *arguments])

    first = rotator("a", "0", "25", "sleeps")
    _, status = os.waitpid(first.pid, os.WUNTRACED)  # it has found that the file is large, and sleeps
    assert os.WIFSTOPPED(status)
    assert rotator("b", "0", "25").wait() == 0
    first.send_signal(signal.SIGCONT)
    assert first.wait() == 0
    text = "".join(each.read_text() for each in tmp_path.iterdir())
    said = {line.split()[2] for line in text.splitlines()}
    assert said == {f"{name}{number}" for name in "ab" for number in range(25)}


def test_a_line_is_written_even_where_the_log_cannot_be_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "control-plane.log"
    path.parent.mkdir()
    script = LOGS.replace("log = ", "os.rename(path.parent, path.parent.with_name('moved')); log = ")
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert "line 199 " in (tmp_path / "moved" / "control-plane.log").read_text()
