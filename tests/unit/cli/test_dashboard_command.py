"""`tradewind dashboard`: what it refuses before it listens; and the control plane's own dashboard."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import load_config
from orchestrator.daemon import dashboard
from orchestrator.installation import Installation
from orchestrator.services.control_plane.background_log import ControlPlaneLog
from orchestrator.store import Store
from orchestrator.web.dashboard_process import beside
from providers.clock import VirtualClock


def test_the_demo_takes_no_orders_and_stays_on_this_machine() -> None:
    for option in (["--allow-actions"], ["--host", "0.0.0.0"]):
        done = CliRunner().invoke(app, ["dashboard", "--demo", *option])
        assert done.exit_code == 2
        assert "omit --demo" in done.output


def test_a_port_in_use_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["--state-dir", str(tmp_path), "dashboard", "--no-open", "--port", port])
    assert done.exit_code == 2
    assert port in done.output
    assert "--port 0" in done.output


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = load_config({"state_dir": str(tmp_path), "web.port": port}, environ={}, cwd=tmp_path)
    clock = VirtualClock()
    return Installation(config, clock, Store.open(config.store_url, clock), {})


def test_the_control_plane_serves_the_dashboard_while_it_runs(installation: Installation) -> None:
    address = f"http://127.0.0.1:{installation.config.web.port}/"
    with dashboard(installation, ControlPlaneLog()), urlopen(address) as answer:
        assert b"Open jobs" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urlopen(address)
    installation.close()


def process_that_serves() -> int:
    """The pid of the process of this one that serves a dashboard."""
    for commands in Path("/proc").glob("[0-9]*/cmdline"):
        words = commands.read_bytes().split(b"\0")
        parent = commands.with_name("stat").read_text().rpartition(")")[2].split()[1]
        if b"orchestrator.web.dashboard_process" in words and int(parent) == os.getpid():
            return int(commands.parent.name)
    raise AssertionError("no such process")


def test_no_reader_delays_the_control_plane_and_a_dashboard_that_dies_is_replaced(installation: Installation) -> None:
    said: list[str] = []
    with beside(installation, 0, said.append, again_s=0.0):
        address = said[0].removeprefix("the dashboard is at ")
        for _ in range(2):
            with urlopen(address) as answer:
                assert b"Open jobs" in answer.read()
            pid = process_that_serves()
            threads = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
            assert len(threads) > 1
            assert {os.getpriority(os.PRIO_PROCESS, each) for each in threads} == {19}
            mine = os.sched_getaffinity(0)
            left = [mine - os.sched_getaffinity(each) for each in threads]
            assert all(len(each) == 1 for each in left) or len(mine) == 1
            os.kill(pid, signal.SIGKILL)
    assert "the dashboard ended (-9); restarting it in 0 s" in said
    installation.close()


def test_a_port_in_use_does_not_keep_the_control_plane_from_running(
    installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", installation.config.web.port or 0))
        taken.listen()
        with dashboard(installation, ControlPlaneLog()):
            pass
    assert "the dashboard is not running" in "".join(capfd.readouterr())
    installation.close()


def test_the_dashboard_is_served_as_soon_as_its_port_is_free(installation: Installation) -> None:
    """A control plane that stands by takes over from one on the same machine."""
    said, port, served = list[str](), installation.config.web.port or 0, threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "is at" in line:
            served.set()

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with beside(installation, port, say, again_s=0.01):
            assert ["the dashboard is not running" in line for line in said] == [True]
            taken.close()
            assert served.wait(60)
            with urlopen(f"http://127.0.0.1:{port}/") as answer:
                assert b"Open jobs" in answer.read()
    installation.close()
