"""Machines as processes: at most one start, found wherever they hide, ended for certain."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from providers import processes
from providers.clock import boot_id
from providers.errors import UnavailableError
from providers.local import process
from providers.processes import Leader

FAMILY = """
trap '' TERM
set -m
(trap '' TERM; sleep 1000; sleep 1000) &
setsid -f sleep 1000
( env -i sleep 1000 & )
setsid -f bash -c 'trap "" TERM; (sleep 1000 &); sleep 1000; true'
say up
sleep 1000; sleep 1000
"""


def test_every_process_is_found_and_killed_wherever_it_went(machines):
    instance_id = machines.up(FAMILY)
    machines.provider.tick()
    pids, groups, sessions = [], set(), set()
    # Its own group and session, a child's group, and those of the two daemons; forking takes the family a moment.
    while len(pids) < 7 or len(groups) < 4 or len(sessions) != 3:
        pids = machines.provider.processes_left()
        with contextlib.suppress(ProcessLookupError):
            groups, sessions = {os.getpgid(pid) for pid in pids}, {os.getsid(pid) for pid in pids}
    machines.provider.terminate(instance_id)
    assert machines.provider.processes_left() == []
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or " Z " in stat.read_text()


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        said = os.open(sys.argv[1], os.O_WRONLY)
        os.write(said, f"{os.getpid()}\\n".encode())
        os.close(said)
        for descriptor in (1, 2):
            os.close(descriptor)
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("leader_dies", [False, True])
def test_a_daemon_that_left_session_parent_and_environment_behind_ends_with_its_machine(machines, leader_dies):
    (machines.pipes / "daemon.py").write_text(DAEMON)
    script = f"{sys.executable} {machines.pipes}/daemon.py {machines.pipes}/t.pipe; exec sleep 1000"
    (instance_id,) = machines.provider.launch(machines.spec(script))
    daemon = int(machines.hear())
    handle = os.pidfd_open(daemon)
    try:
        machines.provider.tick()
        leader = process.claimed_by(machines.home(instance_id))
        assert os.getsid(daemon) != leader.pid
        if leader_dies:
            os.kill(leader.pid, signal.SIGKILL)
            os.waitpid(leader.pid, 0)
        other = machines.attach()  # as in another process, after the one that started the machine
        assert daemon in other.processes_left()
        other.terminate(instance_id)
        assert select.select([handle], [], [], 0)[0], "the daemon lives"
        assert other.processes_left() == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def test_the_mark_of_a_machine_limits_nothing_and_is_its_own(machines):
    one = machines.up("say up; exec sleep 1000")
    two = machines.up("say up; exec sleep 1000", token="t2")
    machines.provider.terminate(one)
    assert machines.look(two).alive
    (left,) = machines.provider.processes_left()
    soft, hard = resource.prlimit(left, resource.RLIMIT_RTTIME)
    assert soft == hard >= 1 << 62


def test_a_machine_that_forks_all_the_time_is_ended_too(machines):
    storm = "(while :; do sleep 0.01 & done) & " * 2
    instance_id = machines.up(f"{storm} say up; while :; do sleep 0.01 & wait -n; done")
    machines.provider.terminate(instance_id)
    assert machines.provider.processes_left() == []


def test_of_many_launchers_exactly_one_continues(tmp_path):
    home = tmp_path / "home"
    children = {process.start("local-many", home, "echo $$ >> starts; exec sleep 1000") for _ in range(8)}
    losers = 0
    while len(children) > 1:
        pid, status = os.wait()
        if pid in children:
            children.remove(pid)
            losers += status == 0
    leader = process.claimed_by(home)
    assert losers == 7
    assert children == {leader.pid}
    processes.kill_all("local-many", leader)
    assert os.waitpid(leader.pid, 0)[1] == signal.SIGKILL
    assert (home / "starts").read_text().split() in ([str(leader.pid)], [])


def test_nothing_starts_in_a_folder_that_was_closed(tmp_path):
    home = tmp_path / "home"
    process.prevent_start(home)
    pid = process.start("local-closed", home, "touch ran")
    assert os.waitpid(pid, 0)[1] == 0
    assert not (home / "ran").exists()
    assert process.was_started(home)
    assert process.claimed_by(home) is None


def test_what_a_machine_writes_is_its_owners_alone_whatever_the_umask_was(tmp_path):
    home = tmp_path / "home"
    before = os.umask(0)
    try:
        pid = process.start("local-private", home, "mkdir inner; echo word > inner/file")
    finally:
        os.umask(before)
    assert os.waitpid(pid, 0)[1] == 0
    assert (home / "inner" / "file").exists()
    assert [path for path in (home, *home.rglob("*")) if path.stat().st_mode & 0o077] == []


def test_a_recycled_pid_or_another_boot_is_not_the_machine():
    me = os.getpid()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert processes.is_alive(Leader(me, ticks, boot_id()))
    assert not processes.is_alive(Leader(me, ticks - 1, boot_id()))
    assert not processes.is_alive(Leader(me, ticks, "another boot"))
    session = os.getsid(0)  # 0 in a container that was entered from outside
    assert processes.living({"local-none": Leader(session, -1, boot_id())}) == []
    assert processes.living({"local-none": Leader(session, ticks, "another boot")}) == []
    assert processes.living({"local-none": Leader(0, -1, boot_id())}) == []


def test_a_zombie_is_dead(tmp_path):
    home = tmp_path / "home"
    pid = process.start("local-zombie", home, "exit 0")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    leader = process.claimed_by(home)
    assert not processes.is_alive(leader)
    assert processes.living({"local-zombie": leader}) == []
    children = {pid}
    processes.reap(children)
    assert children == set()


def test_a_machine_has_an_environment_of_its_own(machines, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    instance_id = machines.up('env > "$TRADEWIND_INSTANCE_DIR/env"; say up; exec sleep 1000')
    environment = dict(line.split("=", 1) for line in (machines.home(instance_id) / "env").read_text().splitlines())
    assert "WANDB_API_KEY" not in environment
    assert environment["TRADEWIND_INSTANCE_ID"] == instance_id
    assert environment["TRADEWIND_METADATA"] == str(machines.home(instance_id) / "metadata.json")
    assert environment["PWD"] == environment["TRADEWIND_INSTANCE_DIR"] == str(machines.home(instance_id))
    assert environment["RAY_process_group_cleanup_enabled"] == "0"


def test_a_machine_holds_no_pipe_of_its_maker_and_logs_to_a_file(machines):
    read, write = os.pipe()
    instance_id = machines.up("echo out; echo err >&2; say up; exec sleep 1000")
    os.close(write)
    assert os.read(read, 1) == b""  # end of file: the machine has no copy of the writing end
    os.close(read)
    assert (machines.home(instance_id) / "output.log").read_text() == "out\nerr\n"


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="could not be started") as caught:
        process.start("local-x", tmp_path / "file" / "home", "")
    assert "can be written" in caught.value.hint


def test_a_session_is_killed_whatever_groups_it_has():
    read, write = os.pipe()
    script = f"set -m; (sleep 1000 &); sleep 1000 & echo x >&{write}; wait"
    leader = subprocess.Popen(["bash", "-c", script], start_new_session=True, pass_fds=[write])
    os.close(write)
    assert os.read(read, 2) == b"x\n"
    processes.kill_session(leader.pid)
    assert os.read(read, 1) == b""  # every process that could have written is dead
    os.close(read)
    assert leader.wait() == -signal.SIGKILL
    processes.kill_session(leader.pid)
    processes.kill_session(0)
