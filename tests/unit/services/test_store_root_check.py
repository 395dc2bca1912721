"""What `doctor` says about the place through which machines get their orders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from orchestrator.errors import SiteError, StoreError
from orchestrator.nodes.channel import control_store, raise_epoch
from orchestrator.services.doctor import objects
from orchestrator.services.doctor.bucket_rules import costly_rules
from orchestrator.services.views import Check
from providers.errors import PermissionDeniedError, ProviderError
from tests.clouds import blob, gcs
from tests.clouds.buckets import BUCKETS
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Fault, Response, serving
from tests.disks import mounted


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedS3]:
    s3 = GuardedS3()
    with serving(s3) as started:
        s3.lead_to(started, monkeypatch)
        yield s3


def installation(root: object, *providers: str, share: bool = False, region: str | None = None) -> Any:
    machines = SimpleNamespace(role=None, share_credentials=share)
    config = SimpleNamespace(store_root=root, store_region=region, machines=machines)
    return cast(Any, SimpleNamespace(config=config, providers=dict.fromkeys(providers), root_in_use=lambda: None))


def test_a_folder_is_enough_for_machines_of_this_host_alone(tmp_path: Path) -> None:
    assert objects.store_root(installation(tmp_path, "local")).state == "ok"
    with pytest.raises(SiteError, match="cannot reach") as caught:
        objects.store_root(installation(tmp_path, "local", "static"))
    assert "s3://" in caught.value.hint


def test_a_folder_in_which_nothing_can_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    with mounted(tmp_path, "ro"), pytest.raises(StoreError, match="Read-only file system") as caught:
        objects.store_root(installation(tmp_path, "local"))
    assert "writable" in caught.value.hint


def test_a_damaged_record_of_who_gives_orders_is_named(tmp_path: Path) -> None:
    given = SimpleNamespace(control_root=str(tmp_path / "control"), state_dir=tmp_path)
    assert objects.orders(cast(Any, given)).found == "none yet"
    raise_epoch(control_store(given.control_root), 7)
    assert objects.orders(cast(Any, given)) == Check("orders", "ok", "the latest are from control plane no. 7")
    (tmp_path / "control/epoch").write_bytes(bytes(3))
    with pytest.raises(SiteError, match="control/epoch is damaged") as caught:
        objects.orders(cast(Any, given))
    assert "delete it" in caught.value.hint


def test_a_damaged_key_of_the_installation_is_named_and_none_is_made(tmp_path: Path) -> None:
    given = cast(Any, SimpleNamespace(control_root=str(tmp_path / "control"), state_dir=tmp_path))
    objects.orders(given)
    assert not (tmp_path / "control.key").exists()
    (tmp_path / "control.key").write_bytes(bytes(3))
    with pytest.raises(SiteError, match=r"control\.key is damaged") as caught:
        objects.orders(given)
    assert "delete it" in caught.value.hint


def test_a_bucket_must_answer_and_give_out_limited_access(s3: GuardedS3) -> None:
    root = f"s3://{s3.bucket}/tw"
    assert "access limited to their job" in objects.store_root(installation(root, "static")).found
    s3.with_sts = False
    with pytest.raises(SiteError, match="issues no credentials") as caught:
        objects.store_root(installation(root, "static"))
    assert "machines.role" in caught.value.hint
    assert objects.store_root(installation(root, "static", share=True)).state == "warn"
    assert objects.store_root(installation(root, "local")).state == "ok"


def test_the_first_contact_of_machines_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's needs a limited token, also where machines get the control plane's own."""
    cloud = GuardedGcs()
    with serving(cloud) as server:
        for name, value in gcs.environment(server).items():
            monkeypatch.setenv(name, value)
        shared = installation(f"gs://{cloud.bucket}/tw", "static", share=True)
        assert objects.store_root(shared).state == "warn"
        cloud.issues = False
        with pytest.raises(SiteError, match="limited"):
            objects.store_root(shared)


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_bucket_that_does_not_exist_or_is_somebody_elses_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = BUCKETS[kind]()
    with serving(bucket.cloud) as server:
        for variables, url, words in (
            (bucket.environment(server), f"{kind}://there-is-no-such-bucket/tw", "does not exist"),
            (bucket.refused(server), f"{bucket.url}/tw", "access denied"),
        ):
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            with pytest.raises(StoreError, match=words) as caught:
                objects.store_root(installation(url, "local"))
            assert caught.value.hint
            assert ("there-is-no-such-bucket" in caught.value.hint) is (words == "does not exist")
    if kind != "az":
        assert "choose another" in caught.value.hint


def test_a_bucket_that_can_only_be_read_is_named(s3: GuardedS3) -> None:
    s3.read_only = True
    with pytest.raises(StoreError, match="read-only") as caught:
        objects.store_root(installation(f"s3://{s3.bucket}/tw", "local"))
    assert "can be written" in caught.value.hint


ABORTS = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
EXPIRES = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"


@pytest.mark.parametrize(
    ("versioning", "prefix", "does", "says"),
    [
        ("", "", ABORTS, ""),
        ("Suspended", "tw/", ABORTS, ""),
        ("Enabled", "", ABORTS, "versions of all deleted"),
        ("Enabled", "", ABORTS + EXPIRES, ""),
        ("", "other/", ABORTS, "interrupted uploads"),
        ("", "", EXPIRES, "interrupted uploads"),
    ],
)
def test_a_bucket_that_keeps_what_was_deleted_is_warned_of(
    s3: GuardedS3, versioning: str, prefix: str, does: str, says: str
) -> None:
    rule = f"<Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>{prefix}</Prefix></Filter>{does}</Rule>"
    s3.configurations["lifecycle"] = f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>"
    s3.configurations["versioning"] = f"<Versioning><Status>{versioning}</Status></Versioning>"
    check = objects.store_root(installation(f"s3://{s3.bucket}/tw", "local"))
    assert (check.state, says in check.found, bool(check.fix)) == ("warn" if says else "ok", True, bool(says))


def test_a_bucket_without_rules_or_whose_rules_cannot_be_read(s3: GuardedS3) -> None:
    root = f"s3://{s3.bucket}/tw"
    del s3.configurations["lifecycle"]
    assert "interrupted" in objects.store_root(installation(root, "local")).found
    s3.configurations["versioning"] = "not XML"
    check = objects.store_root(installation(root, "local"))
    assert check.state == "ok"
    assert "not checked whether the bucket keeps deleted data: its rules cannot be read" in check.found


@pytest.fixture
def gs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedGcs]:
    cloud = GuardedGcs()
    with serving(cloud) as server:
        for name, value in gcs.environment(server).items():
            monkeypatch.setenv(name, value)
        yield cloud


ABORT = {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2}}
DELETE_OLD = {"action": {"type": "Delete"}, "condition": {"numNewerVersions": 1}}
ELSEWHERE = {**ABORT, "condition": {"age": 2, "matchesPrefix": ["other/"]}}
VERSIONED = {"versioning": {"enabled": True}}


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"lifecycle": {"rule": [ABORT]}}, ()),
        ({"lifecycle": {"rule": [ABORT]}, "softDeletePolicy": {"retentionDurationSeconds": "0"}}, ()),
        (
            {"lifecycle": {"rule": [ABORT]}, "softDeletePolicy": {"retentionDurationSeconds": "604800"}},
            ("all deleted data for 7 days", "--clear-soft-delete"),
        ),
        ({"lifecycle": {"rule": [ABORT]}, **VERSIONED}, ("versions of all deleted", "--no-versioning")),
        ({"lifecycle": {"rule": [ABORT, DELETE_OLD]}, **VERSIONED}, ()),
        ({"lifecycle": {"rule": [ELSEWHERE]}}, ("interrupted uploads", "docs/operations.md")),
        ({}, ("interrupted uploads", "docs/operations.md")),
    ],
)
def test_a_bucket_of_google_that_keeps_what_was_deleted_is_warned_of(
    gs: gcs.Gcs, metadata: dict[str, object], says: tuple[str, ...]
) -> None:
    gs.tell(metadata)
    check = objects.store_root(installation(f"gs://{gs.bucket}/tw", "local"))
    assert check.state == ("warn" if says else "ok")
    assert all(each in f"{check.found} {check.fix}" for each in says)
    assert "not checked" not in check.found


@pytest.mark.parametrize(
    ("where", "kind", "declared", "state", "says"),
    [
        ("EUROPE-WEST4", "region", None, "ok", 'set store_region = "europe-west4"'),
        ("EUROPE-WEST4", "region", "europe-west4", "ok", ""),
        ("EUROPE-WEST4", "region", "us-central1", "warn", "it is in europe-west4, and store_region says us-central1"),
        ("US", "multi-region", None, "ok", "are free: set store_region"),
        ("US", "multi-region", "us-central1", "ok", ""),
    ],
)
def test_where_a_bucket_of_google_is_can_be_declared(
    gs: GuardedGcs, where: str, kind: str, declared: str | None, state: str, says: str
) -> None:
    gs.tell({"lifecycle": {"rule": [ABORT]}, "location": where, "locationType": kind})
    check = objects.store_root(installation(f"gs://{gs.bucket}/tw", "static", region=declared))
    assert check.state == state
    assert says in f"{check.found} {check.fix}"
    assert ("store_region" in check.found) is bool(says)


def test_metadata_of_a_bucket_of_google_that_may_not_be_read_are_reported_as_such(gs: gcs.Gcs) -> None:
    gs.granted = frozenset()
    check = objects.store_root(installation(f"gs://{gs.bucket}/tw", "local"))
    assert check.state == "ok"
    assert "not checked" in check.found
    assert "storage.buckets.get" in check.found


def test_the_token_for_the_metadata_is_that_of_googles_own_chain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cloud, file = gcs.Gcs(), tmp_path / "key.json"
    private = rsa.generate_private_key(65537, 2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    answer = Response(body=json.dumps({"access_token": gcs.TOKEN, "expires_in": 3600}).encode())
    with serving(cloud) as server:
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        assert "google-auth returned no token: File " in costly_rules(f"gs://{cloud.bucket}/tw").unchecked
        key = {"type": "service_account", "client_email": "tw@p.iam", "token_uri": f"{server.url}/token"}
        file.write_text(json.dumps({**key, "private_key": private.private_bytes(*form).decode()}))
        server.faults.append(Fault(lambda request: request.path == "/token", None, answer=answer))
        (rule,) = costly_rules(f"gs://{cloud.bucket}/tw").costly
        assert "interrupted uploads" in rule[0]


@pytest.mark.parametrize(
    ("soft_days", "versioned", "says"),
    [
        (0, False, ()),
        (7, False, ("all deleted data for 7 days", "--enable-delete-retention false")),
        (
            0,
            True,
            ("versions of all deleted", "--enable-versioning false", "a life-cycle policy"),
        ),
    ],
)
def test_an_account_of_azure_that_keeps_what_was_deleted_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, soft_days: int, versioned: bool, says: tuple[str, ...]
) -> None:
    cloud = blob.Blob()
    cloud.soft_days, cloud.versioned = soft_days, versioned
    with serving(cloud) as server:
        for name, value in blob.environment(server, cloud.key).items():
            monkeypatch.setenv(name, value)
        check = objects.store_root(installation(f"az://{cloud.container}/tw", "local"))
        assert check.state == ("warn" if says else "ok")
        assert all(each in f"{check.found} {check.fix}" for each in says)
        assert ("not checked" in check.found) == versioned
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", blob.REFUSED_KEY)
        assert "(status 403)" in costly_rules(f"az://{cloud.container}/tw").unchecked


class ByPolicy:
    """An account that is asked through Azure Resource Manager: it deletes versions, does not, or may not be asked."""

    def __init__(self, deletes: bool | ProviderError) -> None:
        self.deletes = deletes

    def deletes_versions(self, name: str, prefix: str) -> bool:
        assert (name.partition("/")[0], prefix) == (blob.ACCOUNT, "tw")
        if isinstance(self.deletes, ProviderError):
            raise self.deletes
        return self.deletes


@pytest.mark.parametrize(
    ("deletes", "costly", "unchecked"),
    [(True, 0, ""), (False, 1, ""), (PermissionDeniedError("no managementPolicies/read"), 1, "managementPolicies")],
)
def test_versions_that_a_policy_of_the_account_deletes_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, deletes: bool | ProviderError, costly: int, unchecked: str
) -> None:
    """What the policy says is tested in tests/clouds/test_arm_buckets.py."""
    cloud = blob.Blob()
    cloud.versioned = True
    with serving(cloud) as server:
        for name, value in blob.environment(server, cloud.key).items():
            monkeypatch.setenv(name, value)
        objects.store_root(installation(f"az://{cloud.container}/tw", "local"))
        found = costly_rules(f"az://{cloud.container}/tw", ByPolicy(deletes))
        assert len(found.costly) == costly
        assert unchecked in found.unchecked
        assert bool(found.unchecked) == bool(unchecked)


def test_a_version_that_an_account_kept_before_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = blob.Blob()
    cloud.versioned = True
    cloud.removed.append(("tw/.probe", blob.Kept(b"probe", '"0x1"', datetime(2026, 1, 2, tzinfo=UTC))))
    with serving(cloud) as server:
        for name, value in blob.environment(server, cloud.key).items():
            monkeypatch.setenv(name, value)
        assert costly_rules(f"az://{cloud.container}/tw").costly == ()


def test_a_bucket_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y"), ("AWS_ALLOW_HTTP", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="no answer"):
        objects.store_root(installation("s3://bucket/tw", "static"))
