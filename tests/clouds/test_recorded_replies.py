"""What infra/record_replies.py records of GCP and Azure: each question reaches the cloud, and no account is named."""

from __future__ import annotations

import json

import pytest

from infra.questions import azure, gcp
from infra.questions.limited import missing_object
from infra.record_replies import record
from providers.azure.session import Connections
from tests.clouds import blob, gcs
from tests.clouds.arm import GROUP, SUBSCRIPTION
from tests.clouds.arm_account import opened
from tests.clouds.compute import PROJECT
from tests.clouds.gce_project import Project
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import LoopbackServer, serving


def test_gcp(project: Project) -> None:
    asked, private = gcp.questions("us-central1", "an-image", "s3://bucket/verify", project.connections)
    found = record(asked, gcp.refused, private)
    assert not any("not asked" in each for each in found.values())
    assert found["a machine that never was"]["read as"] == "NotFoundError"
    assert not project.gce.vms
    assert PROJECT not in json.dumps(found)


def test_azure(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> None:
    account = opened(*arm_clients, "tw-1")
    asked, private = azure.questions("eastus", "Publisher:o:s:v", "s3://bucket/verify", account.connections, GROUP)
    found = record(asked, azure.refused, private)
    assert not any("not asked" in each for each in found.values())
    assert found["a machine that never was"]["read as"] == "NotFoundError"
    assert SUBSCRIPTION not in json.dumps(found)


@pytest.mark.parametrize("kind", ["gs", "az"])
def test_an_object_that_is_not_there_with_limited_access(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = GuardedGcs() if kind == "gs" else GuardedBlob()
    with serving(cloud) as server:
        gs = isinstance(cloud, GuardedGcs)
        for name, value in (gcs.environment(server) if gs else blob.environment(server, cloud.key)).items():
            monkeypatch.setenv(name, value)
        found = missing_object(f"{kind}://{cloud.bucket if gs else cloud.container}/verify")()
    assert (found["object"]["status"], found["list"]["status"]) == (404, 200), found
