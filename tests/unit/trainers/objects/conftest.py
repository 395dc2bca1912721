"""Both object stores: a folder, and a bucket on a loopback S3 server (moto)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.s3 import S3, environment
from tests.clouds.server import LoopbackServer, serving
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.folder import FolderStore
from trainers.objects.retry import Patience

_UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "AWS_DEFAULT_REGION")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(scope="session")
def s3() -> S3:
    return S3()


@pytest.fixture(scope="session")
def started(s3: S3) -> Iterator[LoopbackServer]:
    with serving(s3) as server:
        yield server


@pytest.fixture
def server(started: LoopbackServer, s3: S3, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """The S3 server without faults, and the environment that leads to it."""
    for name in (*_UNSET, *_PROXIES):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(started).items():
        monkeypatch.setenv(name, value)
    s3.ensure_bucket()
    started.serve(s3)
    return started


@pytest.fixture
def pauses() -> list[float]:
    """The pauses between tries, in seconds: none of them is slept."""
    return []


@pytest.fixture
def patience(pauses: list[float]) -> Patience:
    return Patience(sleep=pauses.append, chance=lambda: 1.0)


@pytest.fixture
def bucket_url(server: LoopbackServer, s3: S3) -> str:
    """A place of this test's own."""
    return f"s3://{s3.bucket}/{secrets.token_hex(6)}/deep"


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return open_bucket(request.getfixturevalue("bucket_url"), request.getfixturevalue("patience"))
