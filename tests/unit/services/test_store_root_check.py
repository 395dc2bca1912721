"""What `doctor` says about the place through which machines get their orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import SiteError, StoreError
from orchestrator.services.doctor import objects
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


def test_a_bucket_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y"), ("AWS_ALLOW_HTTP", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="no answer"):
        objects.store_root(installation("s3://bucket/tw", "static"))
