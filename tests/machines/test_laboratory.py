"""The simulated machines are as separate as the tests on them assume."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machines.lab import Kind, Laboratory, laboratory

ROOT = Path(__file__).parents[2]


def until(reached: Callable[[], object], patience_s: float = 60.0) -> None:
    give_up = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory({"one": Kind(), "two": Kind(), "bare": Kind(python=False, system_programs=("bash", "ls"))}) as lab:
        yield lab


def asks(lab: Laboratory, host: str) -> int:
    """The exit code of a request to the bucket."""
    code = f"import urllib.request; urllib.request.urlopen('{lab.server.url}/{lab.s3.bucket}', timeout=0.5)"
    return lab.hosts[host].run(f'python3 -c "{code}"', check=False).returncode


def test_a_host_has_torch_and_ray_but_nothing_of_this_repository_or_of_other_hosts(
    lab: Laboratory, tmp_path: Path
) -> None:
    one, two = lab.hosts["one"], lab.hosts["two"]
    assert one.run("python3 -c 'import torch, ray, pip'; hostname").stdout == "one\n"
    assert one.run("python3 -c 'import orchestrator'", check=False).returncode != 0
    assert one.run("python3 -m pip list", check=False).stdout.lower().count("tradewind") == 0
    assert one.run(f"ls {tmp_path} {ROOT / 'tests'} {Path(__file__)}", check=False).stdout == ""
    one.run("touch ~/mine /tmp/mine")
    assert two.run("ls ~ /tmp").stdout.split() == [f"/home/{two.run('id -un').stdout.strip()}:", "/tmp:"]
    assert not Path("/tmp/mine").exists()
    assert one.run("touch /usr/mine /opt/mine", check=False).returncode != 0


def test_hosts_reach_the_bucket_and_each_other_until_a_cable_is_cut(lab: Laboratory) -> None:
    one, two = lab.hosts["one"], lab.hosts["two"]
    ssh = f"python3 -c \"import socket; print(socket.create_connection(('{two.address}', 22), 0.5).recv(4))\""
    assert asks(lab, "one") == 0
    assert one.run(ssh).stdout == "b'SSH-'\n"
    lab.cut(lab.store, one)
    assert asks(lab, "one") != 0
    assert asks(lab, "two") == 0
    lab.mend(lab.store, one)
    assert asks(lab, "one") == 0
    lab.isolate(one)
    assert asks(lab, "one") != 0
    assert one.run(ssh, check=False).returncode != 0
    lab.rejoin(one)
    assert asks(lab, "one") == 0


def test_a_host_has_no_way_out_of_the_laboratory(lab: Laboratory) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert "unreachable" in lab.hosts["one"].run(f'python3 -c "{code}"', check=False).stderr


def test_sshd_accepts_the_key_in_the_office(lab: Laboratory) -> None:
    with lab.in_office():
        options = ["-F", "none", "-i", lab.key, "-o", f"UserKnownHostsFile={lab.known_hosts}", "-o", "BatchMode=yes"]
        done = subprocess.run(
            ["ssh", *options, f"ada@{lab.hosts['bare'].address}", "type ls; type python3"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.stdout == "ls is /opt/programs/ls\n"


def test_processes_are_killed_paused_and_ended_by_a_reboot(lab: Laboratory) -> None:
    one = lab.hosts["one"]
    start = "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &"
    one.run(start)
    until(one.processes)
    one.kill_all()
    until(lambda: not one.processes())
    one.run(start)
    until(one.processes)
    one.pause()
    until(lambda: [_state(pid) for pid in one.processes()] == ["T"])
    one.resume()
    boot = one.run("cat /proc/sys/kernel/random/boot_id").stdout
    one.reboot()
    assert one.processes() == {}
    assert one.run("cat /proc/sys/kernel/random/boot_id").stdout != boot


def test_nothing_is_left_even_if_the_test_is_killed() -> None:
    program = """if True:
        from tests.machines.lab import laboratory
        with laboratory(["one"]) as lab:
            lab.hosts["one"].run("setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
            while not lab.hosts["one"].processes():
                pass
            print(*lab.hosts["one"].processes(), lab.hosts["one"].pid, lab.office.pid, lab.folder, flush=True)
            input()
    """
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        *pids, folder = map(Path, test.stdout.readline().split())
        assert len(pids) == 3
        test.kill()
    until(lambda: not any(("/proc" / pid).exists() for pid in pids))
    until(lambda: not folder.exists())


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_laboratory_has_no_way_out(lab: Laboratory) -> None:
    """So a test may connect to any address in it (tests/conftest.py)."""
    with lab.in_office():
        socket.create_connection((lab.store.address, int(lab.server.url.rpartition(":")[2])), 5).close()
        for elsewhere in ("192.0.2.1", "8.8.8.8"):
            with pytest.raises(OSError, match="unreachable"):
                socket.create_connection((elsewhere, 80), 5)
    with pytest.raises(OSError, match="own addresses"):
        socket.create_connection((lab.store.address, 80), 5)
