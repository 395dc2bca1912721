"""The store of orders, reports and checkpoints does not answer anybody for a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import Run
from tests.clouds.s3 import S3, environment
from tests.clouds.server import Fault, LoopbackServer, serving
from tests.e2e.living import STEPS, Reference, Tradewind, until

pytestmark = pytest.mark.ray

OUTAGE_S = 60.0
SLOWEST_STEP_S = 2.0  # of tiny:main: it dawdles for a second at most


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serving(S3()) as started:
        yield started


@pytest.fixture
def remote(server: LoopbackServer, tmp_path: Path) -> Iterator[Tradewind]:
    """An installation whose store is a bucket, with the default lease."""
    with pytest.MonkeyPatch.context() as variables:
        for name, value in environment(server).items():
            variables.setenv(name, value)
        assert isinstance(server.cloud, S3)
        home = Tradewind(tmp_path, TRADEWIND_STORE_ROOT=f"s3://{server.cloud.bucket}/tw")
        try:
            home.up()
            yield home
        finally:
            server.faults.clear()
            home.close()


def test_training_goes_on_and_saves_wait(remote: Tradewind, server: LoopbackServer, reference: Reference) -> None:
    job = remote.submit("patient", capacity=["spot"])  # which may be lost, so that it saves several times a minute
    run = remote.training(job, steps=10)
    until("a second checkpoint is saved", lambda: _saved(remote, run) > 10)
    outage = Fault(lambda _: True, times=None, hang=True)
    server.faults.append(outage)
    began = time.monotonic()
    until("the outage has lasted for half a minute", lambda: time.monotonic() - began >= OUTAGE_S / 2)
    before = remote.step(run)
    until("it has lasted for a minute", lambda: time.monotonic() - began >= OUTAGE_S)
    after = remote.progress(run)
    assert after is not None
    assert after.state == "training"
    assert after.step > before + OUTAGE_S / 2 / SLOWEST_STEP_S
    assert after.manifest_step < before
    server.faults.remove(outage)

    until("a checkpoint is saved again", lambda: _saved(remote, run) > after.step)
    assert _saved(remote, run) < STEPS, "not only the one with which the job ends"
    assert "is postponed: " in remote.log(job)
    remote.finish(job)
    assert [each.id for each in remote.runs(job) if each.training_from_ms is not None] == [run.id]
    assert remote.losses(job) == reference.losses()


def _saved(remote: Tradewind, run: Run) -> int:
    reported = remote.progress(run)
    return 0 if reported is None else reported.manifest_step
