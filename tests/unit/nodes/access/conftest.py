"""A guarded S3 service, and the environment of its bucket's owner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import LoopbackServer, serving


@pytest.fixture
def s3() -> GuardedS3:
    return GuardedS3()


@pytest.fixture
def server(s3: GuardedS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    with serving(s3) as started:
        s3.lead_to(started, monkeypatch)
        yield started


@pytest.fixture
def root(s3: GuardedS3, server: LoopbackServer) -> str:
    """The URL of an installation's place in the bucket."""
    return f"s3://{s3.bucket}/tw"
