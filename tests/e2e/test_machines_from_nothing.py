"""A machine that has nothing but its user data trains a job, on real processes, with access that is limited to the job.

The machine is a session of processes with an empty environment and a home of its own; the bucket enforces what each key
may do. The control plane's end is its NodeRuntime; there is no engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.access import aws
from orchestrator.nodes.log_pieces import PieceReader, log_prefix, metrics_prefix
from orchestrator.nodes.outputs import stored_outputs
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Request, serving
from tests.e2e.from_nothing import JOB, JOBS_SECRET, PLACE, RUN, TOKEN, World, machine
from tests.e2e.living import until
from trainers.checkpoint.store import manifests
from trainers.objects.opening import open_store

pytestmark = pytest.mark.ray

LASTS_S = 24  # instead of hours: it is renewed, and expires, while the job trains


@dataclass
class Training:
    """A machine that trains, and the bucket that it uses."""

    world: World
    s3: GuardedS3

    def keys_used(self) -> set[str]:
        """The temporary keys with which checkpoints were written."""
        return {
            key_id
            for request in list(self.world.server.requests)
            if request.method == "PUT" and f"/checkpoints/{JOB}/" in request.path
            for key_id in self.s3.sessions
            if f"Credential={key_id}/" in _authorization(request)
        }


def _authorization(request: Request) -> str:
    return next((value for name, value in request.headers.items() if name.lower() == "authorization"), "")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """It has prepared a run, and trains."""
    folder, s3 = tmp_path_factory.mktemp("world"), GuardedS3()
    with serving(s3) as server, pytest.MonkeyPatch.context() as patch:
        s3.lead_to(server, patch)
        patch.setattr(aws, "LASTS_S", (LASTS_S,))
        with machine(folder, server, f"s3://{s3.bucket}/tw") as world:
            world.train()
            yield Training(world, s3)


def test_it_runs_the_control_planes_code_from_its_own_folder(training: Training) -> None:
    runtimes = training.world.host.home / ".cache" / "tradewind" / "runtime"
    agents = [command for command in training.world.processes().values() if "orchestrator.nodes.agent" in command]
    assert len(agents) == 1
    assert agents[0].startswith(str(runtimes))


def test_it_saves_checkpoints_with_access_that_was_renewed(training: Training) -> None:
    until("two keys have been used", lambda: len(training.keys_used()) >= 2)
    where = f"{training.world.root}/checkpoints"
    newest = max((each.step for each in manifests(where, JOB)), default=0)
    until("another checkpoint is saved", lambda: any(each.step > newest for each in manifests(where, JOB)))
    assert not training.s3.refused, "it needed more than it may"


def test_its_code_log_losses_and_outputs_travel_through_the_store(training: Training) -> None:
    job = open_store(f"{training.world.root}/{PLACE}")

    def read(prefix: str) -> str:
        return b"".join(PieceReader(job, prefix).news()).decode()

    until("its log has arrived", lambda: "code in " in read(log_prefix(RUN)))
    assert f"code in {training.world.host.home}" in read(log_prefix(RUN))
    until("its outputs have arrived", lambda: "before.txt" in stored_outputs(job))
    until("its losses have arrived", lambda: '"loss"' in read(metrics_prefix(RUN)))
    assert not (training.world.folder / "runs").exists()
    assert not (training.world.folder / "outputs").exists()
    assert not training.s3.refused, "it needed more than it may"


def test_nobody_else_can_read_a_key_or_a_secret_anywhere(training: Training) -> None:
    """Not in the store, in files, on the console, in arguments or in what any process was started with."""
    until("a key was used", training.keys_used)
    boot_token = sealing.boot_token(training.world.key(), TOKEN)
    forbidden = [*training.s3.secrets(), JOBS_SECRET]
    assert not any(secret in training.world.user_data for secret in forbidden)
    assert training.world.where(*forbidden, boot_token) == []
    leak = training.world.host.home / "leak"
    leak.write_text(f"a log with {training.s3.secret}")
    assert training.world.where(*forbidden) == [str(leak)], "the search would find it"
    leak.unlink()


def test_a_machine_whose_agent_dies_leaves_nothing(training: Training) -> None:
    """The last test of this file."""
    (agent,) = [pid for pid, command in training.world.processes().items() if "orchestrator.nodes.agent" in command]
    os.kill(agent, signal.SIGKILL)
    assert training.world.host.process is not None
    training.world.host.process.wait(60.0)
    assert training.world.processes() == {}
    assert list((training.world.host.home / ".cache" / "tradewind" / "machines").iterdir()) == []
