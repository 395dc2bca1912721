"""Loopback clouds, one server each for a whole module; a test says what they are with `server.serve(cloud)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clouds.server import LoopbackServer, Request, Response, serving


def nothing(request: Request) -> Response:
    return Response(404, b"{}")


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with serving(nothing) as started:
        yield started


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """No credentials or settings of whoever runs the tests; what a module sets lasts as long as its server."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"):
            patch.delenv(name, raising=False)
        for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_SUBSCRIPTION_ID", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        yield patch


def flags(result: Any) -> list[tuple[str, str]]:
    """(flag, subject) of what was left out."""
    return [(flagged.flag.value, flagged.subject) for flagged in result.flagged]
