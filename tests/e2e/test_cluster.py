"""The Ray cluster of a run: what it listens on, who may use it, starts that fail, a part of it killed, nothing left.

It also holds the pinned version of Ray to the private interfaces that nodes.cluster uses.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.e2e.living import Reference, Tradewind, alive, listening, named, until

pytestmark = pytest.mark.ray

AWAY_S = 8.0
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.fixture(scope="module")
def job(tradewind: Tradewind) -> str:
    """One job that goes through everything in this module."""
    return tradewind.submit("steady")


def test_a_raylet_that_fails_to_start_twice_is_started_a_third_time(tradewind: Tradewind, job: str) -> None:
    ended: set[int] = set()
    first = until("the job has a machine", lambda: next((r for r in tradewind.runs(job) if r.instance_id), None))

    def raylets() -> set[int]:
        return {*tradewind.processes(first, "raylet/raylet")} - ended

    for _ in range(2):
        found = until("the machine starts a raylet", raylets, poll_s=0.001)  # a start takes tenths of a second
        for raylet in found:  # a child of it has the same name until it executes another program
            with suppress(ProcessLookupError):
                os.kill(raylet, signal.SIGKILL)
        ended |= found | raylets()
    run = tradewind.training(job)
    assert named(tradewind.processes(run), "raylet/raylet") not in ended
    assert [each.id for each in tradewind.runs(job)] == [run.id], tradewind.story(job)
    (log,) = tradewind.installation.config.state_dir.rglob(f"{run.instance_id}/output.log")
    said = log.read_text()
    assert [f"start {attempt} of 3 failed: one of its processes died" in said for attempt in (1, 2)] == [True, True], (
        said
    )


def test_every_process_of_a_machine_listens_on_the_loopback_interface_alone(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    pids = {*tradewind.processes(run), *tradewind.session(tradewind.leader_pid)}
    found = listening(pids)
    assert len(found) >= 4  # Ray's control store, the raylet, the agent as driver, the actor
    assert {address for address, _ in found} <= LOOPBACK


def test_a_raylet_that_gets_no_core_for_eight_seconds_costs_nothing(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    raylet = named(tradewind.processes(run), "raylet/raylet")
    os.kill(raylet, signal.SIGSTOP)
    began_s = time.monotonic()
    until("it has been away for so long", lambda: time.monotonic() - began_s > AWAY_S)
    os.kill(raylet, signal.SIGCONT)
    reached = tradewind.step(run)
    until("the job has trained on", lambda: tradewind.step(run) >= reached + 15)
    assert alive(raylet)
    assert [each.id for each in tradewind.runs(job)] == [run.id], tradewind.story(job)


def test_a_driver_without_the_token_of_the_cluster_is_refused(tradewind: Tradewind, job: str) -> None:
    raylet = named(tradewind.processes(tradewind.training(job)), "raylet/raylet")
    ours = tradewind.environment_of(raylet)
    assert stat.S_IMODE(Path(ours["RAY_AUTH_TOKEN_PATH"]).stat().st_mode) == 0o600
    words = Path(f"/proc/{raylet}/cmdline").read_text().split("\0")
    address = next(word.partition("=")[2] for word in words if word.startswith("--gcs-address="))
    attach = (  # the first that a driver does; `ray.init` would go on trying for 20 s
        "from ray._raylet import GcsClient\n"
        f"GcsClient(address={address!r}).internal_kv_exists(b'key', namespace=b'tradewind', timeout=20)"
    )
    theirs = {key: value for key, value in ours.items() if key != "RAY_AUTH_TOKEN_PATH"} | {"RAY_AUTH_TOKEN": "0" * 64}
    processes = [
        subprocess.Popen([sys.executable, "-c", attach], env=environment, stderr=subprocess.PIPE, text=True)
        for environment in (ours, theirs)
    ]
    (_, _), (_, refusal) = [process.communicate(timeout=60) for process in processes]
    assert processes[0].returncode == 0
    assert processes[1].returncode != 0
    assert "auth" in refusal.lower()


def test_a_machine_needs_only_the_lean_ray(tradewind: Tradewind, job: str) -> None:
    assert not [name for name in requires("tradewind") or [] if name.startswith("ray[")]
    processes = tradewind.session(os.getsid(tradewind.agent(tradewind.training(job))))
    assert named(processes, "raylet/raylet")
    needless = ("dashboard.py", "monitor.py", "DashboardAgent", "RuntimeEnvAgent")
    assert not [name for name in processes.values() if any(each in name for each in needless)]


def test_a_machine_whose_control_store_of_ray_is_killed_is_replaced(tradewind: Tradewind, job: str) -> None:
    before = tradewind.training(job)
    left = tradewind.processes(before)
    os.kill(named(left, "gcs_server"), signal.SIGKILL)
    after = tradewind.training(job, after=before)
    assert after.start_step > 0
    until("its processes have ended", lambda: not [name for pid, name in left.items() if alive(pid)])


def test_a_machine_does_not_outlive_its_agent(tradewind: Tradewind, job: str) -> None:
    before = tradewind.training(job)
    left = tradewind.processes(before)
    os.kill(tradewind.agent(before), signal.SIGKILL)
    tradewind.training(job, after=before)
    until("its processes have ended", lambda: not [name for pid, name in left.items() if alive(pid)])
    assert "is gone" in tradewind.events(job, "run.lost")[-1], "it was noticed only by its lease"


def test_down_leaves_no_process_and_a_job_resumes_after_up(
    tradewind: Tradewind, job: str, reference: Reference
) -> None:
    tradewind.command("down")
    assert tradewind.job(job).state == "paused"
    assert tradewind.left_behind() == []
    assert not tradewind.unsettled(job)

    tradewind.command("up")
    assert [int(left.split()[0]) for left in tradewind.left_behind()] == [tradewind.leader_pid]
    tradewind.command("resume", job)
    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()
