"""A machine that has nothing but its user data trains a job, on real processes, with access that is limited to the job.

The machine is a session of processes with an empty environment and a home of its own; the bucket enforces what each key
may do. The control plane's end is its NodeRuntime; there is no engine.
"""

from __future__ import annotations

import gzip
import io
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.nodes import sealing
from orchestrator.nodes.access import issuing
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.boot.launching import Launching, Remote
from orchestrator.nodes.channel import control_store
from orchestrator.nodes.key_file import KeyFile
from orchestrator.nodes.messages import JobFiles
from orchestrator.nodes.outputs import stored_outputs
from orchestrator.nodes.packing import contents, pack
from orchestrator.nodes.trail import TrailReader, log_prefix, metrics_prefix
from orchestrator.nodes.unpacking import code_key
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import LoopbackServer, Request, serving
from tests.e2e.living import PROGRAMS, until
from tests.machines_from_nothing import Host, in_session
from trainers.checkpoint.fences import write_fence
from trainers.checkpoint.store import manifests
from trainers.objects.opening import open_store
from trainers.spec import TrainerSpec

pytestmark = pytest.mark.ray

TOKEN, JOB, RUN = "launch-1", "job-1", "run-1"
GZIP = b"\x1f\x8b"
PLACE = f"jobs/install/{JOB}"
JOBS_SECRET = "correct-horse-battery-staple-4712"
LASTS_S = 24  # instead of hours: it is renewed, and expires, while the job trains


@dataclass
class World:
    """One machine that trains, and what it was made from."""

    folder: Path
    s3: GuardedS3
    server: LoopbackServer
    root: str
    runtime: NodeRuntime
    key: KeyFile
    host: Host
    user_data: str

    def report(self) -> RunReport | None:
        return self.runtime.reports([RUN]).get(RUN)

    def reaches(self, state: str) -> RunReport:
        def look() -> RunReport | None:
            assert self.runtime.boot_error(TOKEN) is None, self.runtime.boot_error(TOKEN)
            assert self.host.process is not None
            assert self.host.process.poll() is None, self.host.said()
            found = self.report()
            assert found is None or found.error is None, found.error
            return found if found is not None and found.state == state else None

        found = until(f"the run is {state}", look)
        assert found is not None
        return found

    def processes(self) -> dict[int, str]:
        assert self.host.process is not None
        return dict(in_session(self.host.process.pid))

    def keys_used(self) -> set[str]:
        """The temporary keys with which checkpoints were written."""
        return {
            key_id
            for request in list(self.server.requests)
            if request.method == "PUT" and f"/checkpoints/{JOB}/" in request.path
            for key_id in self.s3.sessions
            if f"Credential={key_id}/" in _authorization(request)
        }


def _authorization(request: Request) -> str:
    return next((value for name, value in request.headers.items() if name.lower() == "authorization"), "")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, s3 = tmp_path_factory.mktemp("world"), GuardedS3()
    with serving(s3) as server, pytest.MonkeyPatch.context() as patch:
        s3.lead_to(server, patch)
        patch.setattr(issuing, "LASTS_S", (LASTS_S,))
        root, key, issuer = f"s3://{s3.bucket}/tw", KeyFile(folder / "key"), Issuer()
        launching = Launching(root, "install", key, issuer)
        store = control_store(f"{root}/control/install")
        runtime = NodeRuntime(
            store,
            key=key,
            runs_dir=folder / "runs",
            environments=folder / "environments",
            temp_dir=folder / "ray",
            lease_s=60.0,
            launching=launching,
            lender=Lender(store, issuer, launching.scope),
        )
        host = Host(folder)
        user_data = runtime.bootstrap(token=TOKEN, remote=Remote(JOB, RUN, f"{root}/checkpoints"))
        host.boot(user_data)
        try:
            yield World(folder, s3, server, root, runtime, key, host, user_data)
        finally:
            host.end()
            runtime.close()


@pytest.fixture(scope="module")
def training(world: World) -> World:
    """It has prepared a run, and trains."""
    until("the machine has joined", lambda: world.runtime.joined(TOKEN))
    archive = io.BytesIO()
    digest = pack(contents(PROGRAMS), archive)
    open_store(f"{world.root}/{PLACE}").put(code_key(digest), archive.getvalue())
    world.runtime.prepare(RUN, TOKEN, files=JobFiles(PLACE, digest))
    world.reaches("prepared")
    spec = TrainerSpec(
        job_id=JOB,
        run_id=RUN,
        generation=1,
        attempt=1,
        checkpoint_root=f"{world.root}/checkpoints",
        control_dir="",
        output_dir="",
        workdir="",
        entry="talks:main",
        args={"hurry": str(world.folder / "hurry")},
        steps=100_000,
    )
    world.runtime.start(RunSpec(RUN, JOB, 1, spec.to_json(), {"JOBS_SECRET": JOBS_SECRET}))
    world.reaches("restored")
    write_fence(f"{world.root}/checkpoints", JOB, 1, None)
    world.reaches("training")
    return world


def test_it_runs_the_control_planes_code_from_its_own_folder(training: World) -> None:
    runtimes = training.host.home / ".cache" / "tradewind" / "runtime"
    agents = [command for command in training.processes().values() if "orchestrator.nodes.agent" in command]
    assert len(agents) == 1
    assert agents[0].startswith(str(runtimes))


def test_it_saves_checkpoints_with_access_that_was_renewed(training: World) -> None:
    until("two keys have been used", lambda: len(training.keys_used()) >= 2)
    assert manifests(f"{training.root}/checkpoints", JOB)
    assert not training.s3.refused, "it needed more than it may"


def test_its_code_log_losses_and_outputs_travel_through_the_store(training: World) -> None:
    job = open_store(f"{training.root}/{PLACE}")

    def read(prefix: str) -> str:
        return b"".join(TrailReader(job, prefix).news()).decode()

    until("its log has arrived", lambda: "code in " in read(log_prefix(RUN)))
    assert f"code in {training.host.home}" in read(log_prefix(RUN))
    until("its outputs have arrived", lambda: "before.txt" in stored_outputs(job))
    until("its losses have arrived", lambda: '"loss"' in read(metrics_prefix(RUN)))
    assert not (training.folder / "runs").exists()
    assert not (training.folder / "outputs").exists()
    assert not training.s3.refused, "it needed more than it may"


def test_nobody_else_can_read_a_key_or_a_secret_anywhere(training: World) -> None:
    """Not in the store, in files, on the console, in arguments or in what any process was started with."""
    until("a key was used", training.keys_used)
    boot_token = sealing.boot_token(training.key(), TOKEN)
    forbidden = [*training.s3.secrets(), JOBS_SECRET]
    assert not any(secret in training.user_data for secret in forbidden)
    assert _where(training, *forbidden, boot_token) == []
    leak = training.host.home / "leak"
    leak.write_text(f"a log with {training.s3.secret}")
    assert _where(training, *forbidden) == [str(leak)], "the search would find it"
    leak.unlink()


def _where(world: World, *wanted: str) -> list[str]:
    """The places whose bytes contain one of these."""
    places = dict(_objects(world)) | {str(path): path.read_bytes() for path in _files(world.folder)}
    for pid in world.processes():
        places |= {f"/proc/{pid}/{name}": _read(f"/proc/{pid}/{name}") for name in ("cmdline", "environ")}
    places["requests"] = b"".join(request.path.encode() + request.body for request in [*world.server.requests])
    return [place for place, data in places.items() if any(each.encode() in data for each in wanted)]


def _objects(world: World) -> Iterator[tuple[str, bytes]]:
    store = open_store(world.root)
    for listed in store.list():
        found = store.get(listed.key, 1 << 30)  # a log may have grown since
        if found is not None:
            yield listed.key, gzip.decompress(found.data) if found.data.startswith(GZIP) else found.data


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix not in (".py", ".pyc", ".so"):
            yield path


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # gone meanwhile
        return b""


def test_a_machine_whose_agent_dies_leaves_nothing(training: World) -> None:
    """The last test of this file."""
    (agent,) = [pid for pid, command in training.processes().items() if "orchestrator.nodes.agent" in command]
    os.kill(agent, signal.SIGKILL)
    assert training.host.process is not None
    training.host.process.wait(60.0)
    assert training.processes() == {}
    assert list((training.host.home / ".cache" / "tradewind" / "machines").iterdir()) == []
