"""What `doctor` says about the place through which machines get their orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import SiteError, StoreError
from orchestrator.services.doctor import objects
from tests.clouds.buckets import BUCKETS
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import serving


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedS3]:
    s3 = GuardedS3()
    with serving(s3) as started:
        s3.lead_to(started, monkeypatch)
        yield s3


def installation(root: object, *providers: str, share: bool = False) -> Any:
    machines = SimpleNamespace(role=None, share_credentials=share)
    config = SimpleNamespace(store_root=root, machines=machines)
    return cast(Any, SimpleNamespace(config=config, providers=dict.fromkeys(providers)))


def test_a_folder_is_enough_for_machines_of_this_host_alone(tmp_path: Path) -> None:
    assert objects.store_root(installation(tmp_path, "local")).state == "ok"
    with pytest.raises(SiteError, match="cannot reach") as caught:
        objects.store_root(installation(tmp_path, "local", "static"))
    assert "s3://" in caught.value.hint


def test_a_bucket_must_answer_and_give_out_limited_access(s3: GuardedS3) -> None:
    root = f"s3://{s3.bucket}/tw"
    assert "access limited to a job" in objects.store_root(installation(root, "static")).found
    s3.with_sts = False
    with pytest.raises(SiteError, match="issues no credentials") as caught:
        objects.store_root(installation(root, "static"))
    assert "machines.role" in caught.value.hint
    assert objects.store_root(installation(root, "static", share=True)).state == "warn"
    assert objects.store_root(installation(root, "local")).state == "ok"


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
        ("Enabled", "", ABORTS, "versions of all that is deleted"),
        ("Enabled", "", ABORTS + EXPIRES, ""),
        ("", "other/", ABORTS, "uploads that were interrupted"),
        ("", "", EXPIRES, "uploads that were interrupted"),
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
    assert objects.store_root(installation(root, "local")).state == "ok"


def test_a_bucket_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y"), ("AWS_ALLOW_HTTP", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="no answer"):
        objects.store_root(installation("s3://bucket/tw", "static"))
