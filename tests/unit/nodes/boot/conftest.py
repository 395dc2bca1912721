"""The control plane's end of user data, with a loopback bucket, and a host that boots it as real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.boot.launching import Launching, Remote
from orchestrator.nodes.boot.runtime_files import RuntimeFiles, runtime_files
from orchestrator.nodes.channel import Channel
from orchestrator.nodes.messages import NodeFacts
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import LoopbackServer, serving
from tests.machines_from_nothing import Host, in_session
from trainers.objects.opening import open_store

TOKEN = "launch-1"
KEY = b"k" * 32
PATIENCE_S = 60.0


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251


@pytest.fixture(scope="module")
def s3() -> GuardedS3:
    return GuardedS3()


@pytest.fixture(scope="module")
def server(s3: GuardedS3) -> Iterator[LoopbackServer]:
    with serving(s3) as started, pytest.MonkeyPatch.context() as patch:
        s3.lead_to(started, patch)
        yield started


CACHED = cache(runtime_files)


@dataclass
class Plane:
    """The control plane's end."""

    root: str
    clock: Callable[[], datetime] = now
    files: Callable[[], RuntimeFiles] = CACHED

    def launching(self) -> Launching:
        return Launching(self.root, "install", lambda: KEY, Issuer(now), self.clock, files=self.files)

    def user_data(self, token: str = TOKEN, *, gpu: str | None = None, gpu_count: int = 0) -> str:
        return self.launching().user_data(token, Remote("job-1", "run-1", f"{self.root}/checkpoints", gpu, gpu_count))

    def reported(self, token: str = TOKEN) -> NodeFacts:
        facts = Channel(open_store(f"{self.root}/control/install"), token).facts()
        assert facts is not None
        boot_token = sealing.boot_token(KEY, token)
        assert sealing.is_proven(boot_token, facts.boot, facts.public_key, facts.proof, facts.error)
        return facts


@pytest.fixture
def plane(s3: GuardedS3, server: LoopbackServer, request: pytest.FixtureRequest) -> Plane:
    return Plane(f"s3://{s3.bucket}/{request.node.name.replace('[', '-').replace(']', '')[:60]}")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.end()


def refused(host: Host, plane: Plane, user_data: str, **variables: str) -> str:
    """What a machine that cannot be used tells the control plane, and its console; it leaves nothing running."""
    process = host.boot(user_data, **variables)
    assert process.wait(PATIENCE_S) == 1
    return said_why(host, plane, process)


def said_why(host: Host, plane: Plane, process: subprocess.Popen[bytes]) -> str:
    facts = plane.reported()
    assert facts.public_key == ""
    assert facts.error in host.said()
    assert not in_session(process.pid)
    return facts.error


def remote(plane: Plane) -> Remote:
    return Remote("job-1", "run-1", f"{plane.root}/checkpoints")
