"""The site itself: what it listens on, who may use it, starts that fail, its head killed, all of it shut down; and Ray
only while something runs."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from importlib.metadata import requires

import pytest

from orchestrator.engine.site.environment import ray_environment
from tests.e2e.living import Reference, Tradewind, alive, listening, named, until

pytestmark = pytest.mark.ray

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.fixture(scope="module")
def job(tradewind: Tradewind) -> str:
    """One job that goes through everything in this module."""
    return tradewind.submit("steady")


def test_a_raylet_that_fails_to_start_twice_is_started_a_third_time(tradewind: Tradewind, job: str) -> None:
    killed: set[int] = set()

    def another_raylet() -> int:
        runs = [run for run in tradewind.runs(job) if run.instance_id is not None]
        found = [pid for run in runs for pid, name in tradewind.processes(run).items() if "raylet/raylet" in name]
        return next((pid for pid in found if pid not in killed), 0)

    for _ in range(2):
        raylet = until("the machine starts a raylet", another_raylet)
        os.kill(raylet, signal.SIGKILL)
        killed.add(raylet)
    run = tradewind.training(job)
    assert named(tradewind.processes(run), "raylet/raylet") not in killed
    assert [each.id for each in tradewind.runs(job)] == [run.id], "another machine had to be rented"


def test_every_process_of_the_site_listens_on_the_loopback_interface_alone(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    head = tradewind.site.read_head()
    assert head is not None
    pids = {*tradewind.processes(run), *tradewind.session(head.pid), *tradewind.session(tradewind.leader_pid)}
    found = listening(pids)
    assert len(found) >= 4  # the head's control store, two raylets, the actor
    assert {address for address, _ in found} <= LOOPBACK


def test_a_driver_without_the_token_of_the_site_is_refused(tradewind: Tradewind) -> None:
    head = tradewind.site.read_head()
    assert head is not None
    assert stat.S_IMODE(tradewind.site.token_path.stat().st_mode) == 0o600
    attach = (  # the first that a driver does; `ray.init` would go on trying for 20 s
        "from ray._raylet import GcsClient\n"
        f"GcsClient(address={head.gcs_address!r}).internal_kv_exists(b'key', namespace=b'tradewind', timeout=20)"
    )
    ours = os.environ | ray_environment(tradewind.site)
    theirs = {key: value for key, value in ours.items() if key != "RAY_AUTH_TOKEN_PATH"} | {"RAY_AUTH_TOKEN": "0" * 64}
    processes = [
        subprocess.Popen([sys.executable, "-c", attach], env=environment, stderr=subprocess.PIPE, text=True)
        for environment in (ours, theirs)
    ]
    (_, _), (_, refusal) = [process.communicate(timeout=60) for process in processes]
    assert processes[0].returncode == 0
    assert processes[1].returncode != 0
    assert "auth" in refusal.lower()


def test_the_site_needs_only_the_lean_ray(tradewind: Tradewind) -> None:
    assert not [name for name in requires("tradewind") or [] if name.startswith("ray[")]
    head = tradewind.site.read_head()
    assert head is not None
    assert not [name for name in tradewind.session(head.pid).values() if "dashboard.py" in name]


def test_a_killed_head_is_started_again_and_its_jobs_go_on_from_their_checkpoints(
    tradewind: Tradewind, job: str
) -> None:
    before = tradewind.training(job)
    head = tradewind.site.read_head()
    assert head is not None
    left = tradewind.session(head.pid)
    with socket.socket() as squatter:
        os.kill(head.pid, signal.SIGKILL)
        _take_port(squatter, head.gcs_address)
        after = tradewind.training(job, after=before)
    fresh = tradewind.site.read_head()
    assert fresh is not None
    assert fresh.gcs_address != head.gcs_address, "somebody else has that port now"
    assert after.start_step > 0
    assert not [name for pid, name in left.items() if alive(pid)], "the dead head's processes were left behind"
    assert not tradewind.processes(before)
    assert len(tradewind.events(job, "site.unavailable")) <= 1, "an outage is reported once"


def _take_port(squatter: socket.socket, address: str) -> None:
    """Listen there as soon as the dead have let go of it."""
    host, _, port = address.rpartition(":")
    squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its connections linger for a minute

    def taken() -> bool:
        try:
            squatter.bind((host, int(port)))
        except OSError:
            return False
        return True

    until("the port is free", taken)
    squatter.listen()


def test_down_leaves_no_process_and_a_job_resumes_after_up(
    tradewind: Tradewind, job: str, reference: Reference
) -> None:
    tradewind.command("down")
    assert tradewind.job(job).state == "paused"
    assert tradewind.left_behind() == []
    assert not tradewind.unsettled(job)

    tradewind.environment["TRADEWIND_SITE_STOP_AFTER_IDLE_S"] = "1"
    started = tradewind.command("up")
    assert "Ray: not running (starts with the first job)" in started.stdout
    assert _only_the_control_plane(tradewind), "up started Ray without a job"
    tradewind.command("resume", job)
    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()


def test_ray_ends_when_nothing_has_run_for_a_while_and_the_next_job_starts_it_again(tradewind: Tradewind) -> None:
    until("Ray has ended", lambda: _only_the_control_plane(tradewind))
    assert tradewind.site.read_head() is None
    train = {"script": "attached_script.py", "steps": 1}
    job = tradewind.ended(tradewind.submit("after-a-pause", train=train, retries=0), "finished")
    assert len(tradewind.events(job.id, "site.starting")) == 1
    assert not tradewind.events(job.id, "site.unavailable")
    until("Ray has ended again", lambda: _only_the_control_plane(tradewind))


def _only_the_control_plane(tradewind: Tradewind) -> bool:
    return [int(left.split()[0]) for left in tradewind.left_behind()] == [tradewind.leader_pid]
