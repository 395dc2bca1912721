"""Credentials that are revoked while a checkpoint is uploaded, and a bucket in another region: the run fails with the
remedy, nothing that is stored changes, and the job continues from the previous checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote

import pytest

from tests.clouds import blob, gcs, s3
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import USER, GuardedGcs, Session
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Fault, LoopbackServer, Request, serving
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName

TOKEN = "ya29.lent"


@dataclass
class Revocable:
    """A bucket and its server. `variables` are those of a client whose credentials `revoke` revokes, and `renewed`
    those of one with new credentials; `remedy` is part of what to check."""

    server: LoopbackServer
    url: str
    variables: Mapping[str, str]
    revoke: Callable[[], object]
    renewed: Callable[[], Mapping[str, str]]
    remedy: str


def of_s3(cloud: GuardedS3, server: LoopbackServer) -> Revocable:
    def variables() -> Mapping[str, str]:
        return {**s3.environment(server), "AWS_SECRET_ACCESS_KEY": cloud.secret}

    def revoke() -> None:
        cloud.secret = "the next one"

    return Revocable(server, f"s3://{cloud.bucket}/jobs", variables(), revoke, variables, "s3:PutObject")


def of_gcs(cloud: GuardedGcs, server: LoopbackServer) -> Revocable:
    objects = f"projects/_/buckets/{cloud.bucket}/objects/"
    listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    rule = {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{cloud.bucket}",
        "availablePermissions": [USER],
        "availabilityCondition": {
            "expression": f"resource.name.startsWith('{objects}jobs/') || {listed}.startsWith('jobs/')"
        },
    }
    cloud.sessions[TOKEN] = Session([rule], cloud.now() + timedelta(hours=1))
    return Revocable(
        server,
        f"gs://{cloud.bucket}/jobs",
        gcs.environment(server, TOKEN),
        lambda: cloud.sessions.pop(TOKEN),
        lambda: gcs.environment(server),
        "roles/storage.objectUser",
    )


def of_blob(cloud: GuardedBlob, server: LoopbackServer) -> Revocable:
    def variables() -> Mapping[str, str]:
        return blob.environment(server, cloud.key)

    def revoke() -> None:
        cloud.key = blob.REFUSED_KEY

    remedy = "Storage Blob Data Contributor"
    return Revocable(server, f"az://{cloud.container}/jobs", variables(), revoke, variables, remedy)


@pytest.fixture(params=["s3", "gs", "az"])
def revocable(request: pytest.FixtureRequest) -> Iterator[Revocable]:
    cloud = {"s3": GuardedS3, "gs": GuardedGcs, "az": GuardedBlob}[request.param]()
    with serving(cloud) as server:
        if isinstance(cloud, GuardedS3):
            yield of_s3(cloud, server)
        elif isinstance(cloud, GuardedGcs):
            yield of_gcs(cloud, server)
        else:
            yield of_blob(cloud, server)


def in_the_middle_of_the_second_upload(server: LoopbackServer, revoke: Callable[[], object]) -> None:
    """Revoke when the first chunk of the second checkpoint has arrived: the next request is refused."""
    seen = {"manifests": 0, "chunks": 0, "revoked": 0}

    def pass_by(request: Request) -> bool:
        if seen["chunks"] and not seen["revoked"]:
            seen["revoked"] += 1
            revoke()
        if request.method == "PUT":
            path = unquote(request.path)
            seen["manifests"] += "/manifests/" in path
            seen["chunks"] += "/chunks/" in path and seen["manifests"] == 1
        return False

    server.faults = [Fault(pass_by, times=None)]


def with_variables(patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        patch.setenv(name, value)


def test_credentials_revoked_in_the_middle_of_an_upload_cost_the_run_but_no_checkpoint(
    job, revocable: Revocable, uninterrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_variables(monkeypatch, revocable.variables)
    job.root, server = revocable.url, revocable.server
    in_the_middle_of_the_second_upload(server, revocable.revoke)
    failed = job.run(spec={"env": dict(revocable.variables), "max_in_flight": 0})
    assert failed.status == "failed", failed.log
    assert f"StoreDenied: {revocable.url}" in failed.progress.error
    assert revocable.remedy in failed.progress.error
    (written,) = [asked.body for asked in server.asked("manifests") if asked.method == "PUT"]

    server.faults, variables = [], revocable.renewed()
    with_variables(monkeypatch, variables)
    kept = store.newest_counting(job.root, job.job_id, 2, on_damage=pytest.fail)
    assert kept == failed.progress.manifest
    assert kept is not None
    key = store.manifest_key(ManifestName.parse(kept))
    stored = store.job_store(job.root, job.job_id).get(key, 1 << 20)
    assert stored is not None
    assert stored.data == written

    resumed = job.run(spec={"env": dict(variables)})
    assert resumed.status == "finished", resumed.log
    assert resumed.progress.start_step == failed.progress.manifest_step > 0
    assert failed.losses | resumed.losses == uninterrupted.losses
    assert resumed.progress.weights_hash == uninterrupted.progress.weights_hash


def test_the_writer_beside_the_training_reports_revoked_credentials_as_well(
    job, revocable: Revocable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_variables(monkeypatch, revocable.variables)
    job.root = revocable.url
    in_the_middle_of_the_second_upload(revocable.server, revocable.revoke)
    failed = job.run(spec={"env": dict(revocable.variables)})
    assert failed.status == "failed", failed.log
    assert revocable.remedy in failed.progress.error


def test_a_bucket_in_another_region_is_named_with_the_variable_to_set(job, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = GuardedS3()
    with serving(cloud) as server:
        variables = {**s3.environment(server), "AWS_SECRET_ACCESS_KEY": cloud.secret}
        with_variables(monkeypatch, variables)
        job.root = f"s3://{cloud.bucket}/jobs"
        store.write_fence(job.root, job.job_id, 1, None)
        cloud.region = "eu-west-1"
        failed = job.run(spec={"env": variables}, fence=False)
    assert failed.status == "failed"
    assert f"StoreNotFound: {job.root}/{job.job_id}: the bucket is in another region" in failed.progress.error
    assert "set AWS_REGION" in failed.progress.error
