"""A machine that has nothing but its user data trains a job with a store of Google or Azure, on real processes: with
access that is limited to the job, and renewed before it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.access import azure
from orchestrator.nodes.log_pieces import PieceReader, log_prefix
from orchestrator.nodes.outputs import stored_outputs
from tests.clouds import blob, gcs
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import serving
from tests.e2e.from_nothing import JOB, JOBS_SECRET, PLACE, RUN, TOKEN, World, machine
from tests.e2e.living import until
from trainers.checkpoint.store import manifests
from trainers.objects.opening import open_store

pytestmark = pytest.mark.ray

LASTS_S = 20  # instead of hours


def test_with_cloud_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = GuardedGcs(lasts_s=LASTS_S)
    with serving(cloud) as server:
        for name, value in gcs.environment(server).items():
            monkeypatch.setenv(name, value)
        with machine(tmp_path, server, f"gs://{cloud.bucket}/tw") as world:
            it_trains(world, cloud)


def test_with_blob_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "LASTS_S", LASTS_S)
    cloud = GuardedBlob()
    with serving(cloud) as server:
        for name, value in blob.environment(server, cloud.key).items():
            monkeypatch.setenv(name, value)
        with machine(tmp_path, server, f"az://{cloud.container}/tw") as world:
            it_trains(world, cloud)


def it_trains(world: World, cloud: GuardedGcs | GuardedBlob) -> None:
    world.train()
    until("a checkpoint was saved", lambda: manifests(f"{world.root}/checkpoints", JOB))
    before = cloud.used()
    until("its access is renewed", lambda: cloud.used() - before)
    renewed = _saved(world)
    until("with newer access, another one", lambda: _saved(world) > renewed)
    job = open_store(f"{world.root}/{PLACE}")
    until("its log has arrived", lambda: b"code in " in b"".join(PieceReader(job, log_prefix(RUN)).news()))
    until("its outputs have arrived", lambda: "before.txt" in stored_outputs(job))
    assert not cloud.refused, "it needed more than it may"
    forbidden = [*cloud.secrets(), JOBS_SECRET]
    assert not any(secret in world.user_data for secret in forbidden)
    assert world.where(*forbidden, sealing.boot_token(world.key(), TOKEN)) == []


def _saved(world: World) -> int:
    return max((each.step for each in manifests(f"{world.root}/checkpoints", JOB)), default=0)
