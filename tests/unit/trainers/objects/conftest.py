"""All object stores: a folder, and buckets on loopback servers: S3 (moto), Cloud Storage and Azure Blob Storage."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.clouds.buckets import BUCKETS, VARIABLES, Bucket
from tests.clouds.server import LoopbackServer, serving
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.folder import FolderStore
from trainers.objects.retry import Patience

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], tuple[Bucket, LoopbackServer]]]:
    """The bucket and the server of a cloud, by the scheme of its URLs."""
    with ExitStack() as servers:

        @cache
        def of(scheme: str) -> tuple[Bucket, LoopbackServer]:
            bucket = BUCKETS[scheme]()
            return bucket, servers.enter_context(serving(bucket.cloud))

        yield of


@pytest.fixture
def scheme(request: pytest.FixtureRequest) -> str:
    """That of the URLs of this test's cloud."""
    return str(request.getfixturevalue("kind")) if "kind" in request.fixturenames else "s3"


@pytest.fixture
def bucket(started: Callable[[str], tuple[Bucket, LoopbackServer]], scheme: str) -> Bucket:
    return started(scheme)[0]


@pytest.fixture
def server(
    started: Callable[[str], tuple[Bucket, LoopbackServer]], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> LoopbackServer:
    """The cloud's server without faults, and the environment that leads to it."""
    bucket, server = started(scheme)
    for name in [*_PROXIES, *(name for name in os.environ if name.startswith(VARIABLES))]:
        monkeypatch.delenv(name, raising=False)
    for name, value in bucket.environment(server).items():
        monkeypatch.setenv(name, value)
    bucket.ready()
    server.serve(bucket.cloud)
    return server


@pytest.fixture
def pauses() -> list[float]:
    """The pauses between tries, in seconds: none of them is slept."""
    return []


@pytest.fixture
def patience(pauses: list[float]) -> Patience:
    return Patience(sleep=pauses.append, chance=lambda: 1.0)


@pytest.fixture
def bucket_url(server: LoopbackServer, bucket: Bucket) -> str:
    """A place of this test's own."""
    return f"{bucket.url}/{secrets.token_hex(6)}/deep"


@pytest.fixture(params=["folder", "s3", "gs", "az"])
def kind(request: pytest.FixtureRequest) -> str:
    """That of the object store of this test: a folder, or the cloud of a bucket."""
    return str(request.param)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if kind == "folder":
        return FolderStore(tmp_path / "store")
    return open_bucket(request.getfixturevalue("bucket_url"), request.getfixturevalue("patience"))
