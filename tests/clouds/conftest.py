"""Loopback clouds, one server each for a whole module; a test says what they are with `server.serve(cloud)`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.clouds.server import LoopbackServer, Request, Response, serving

if TYPE_CHECKING:
    from providers.aws.session import Connections
    from providers.azure.session import Connections as AzureConnections
    from providers.gcp.session import Connections as GcpConnections
    from tests.clouds.ec2_account import Account
    from tests.clouds.ec2_networks import Networks
    from tests.clouds.gce_project import Project


def nothing(request: Request) -> Response:
    return Response(404, b"{}")


@pytest.fixture(scope="session", autouse=True)
def _services_of_aws_are_read_once() -> Iterator[None]:
    """Each boto3 session parses the service descriptions again, which takes longer than many of these tests."""
    from botocore.loaders import JSONFileLoader

    loaded = cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: loaded(path))
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with serving(nothing) as started:
        yield started


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """No credentials or settings of the user who runs the tests; what a module sets lasts as long as its server."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"):
            patch.delenv(name, raising=False)
        for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_SUBSCRIPTION_ID", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        yield patch


@pytest.fixture(scope="module")
def ec2_clients() -> Iterator[tuple[LoopbackServer, Connections]]:
    """A server for loopback EC2s, and boto3's clients of it: to make those takes time. After a refusal they would wait
    before their next request, for seconds after several."""
    from botocore.retries.bucket import TokenBucket

    from providers.aws.session import Connections

    with serving(nothing) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setattr(TokenBucket, "acquire", lambda *_, **__: True)
        yield server, Connections(read_s=5, attempts=1)


@pytest.fixture(scope="module")
def arm_clients(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LoopbackServer, LoopbackServer, AzureConnections]]:
    """A server for loopback ARMs, one for their price lists, which need no account, and a connection to the former."""
    from providers.azure.session import Connections
    from tests.clouds.arm import SUBSCRIPTION
    from tests.clouds.azure import Token, loopback_tls

    context, authority = loopback_tls(tmp_path_factory.mktemp("tls"))
    with serving(nothing, context) as server, serving(nothing) as shop:
        yield server, shop, Connections(SUBSCRIPTION, server.url, authority, Token(), call_s=5.0, attempts=1)


@pytest.fixture(scope="module")
def ec2_networks() -> Networks:
    """The networks of all tests of a module."""
    from tests.clouds.ec2_networks import Networks

    return Networks()


@pytest.fixture
def account(ec2_clients: tuple[LoopbackServer, Connections], ec2_networks: Networks) -> Account:
    """An account whose networks have been made."""
    from tests.clouds.ec2_account import opened

    found = opened(*ec2_clients, ec2_networks)
    if not ec2_networks.parts("us-east-1"):
        found.connect().set_up("tw-1", lambda _: None)
        found.server.requests.clear()
    return found


@pytest.fixture(scope="module")
def gce_clients() -> Iterator[tuple[LoopbackServer, GcpConnections]]:
    """A server for loopback Compute Engines, and connections to it: their clients take a second to make."""
    from providers.gcp.session import Connections
    from tests.clouds.compute import PROJECT

    with serving(nothing) as server:
        yield server, Connections(PROJECT, server.url, call_s=2.0, patience_s=0.0)


@pytest.fixture
def project(gce_clients: tuple[LoopbackServer, GcpConnections]) -> Project:
    """A project whose network has been made."""
    from tests.clouds.gce_project import opened

    return opened(*gce_clients)


def flags(result: Any) -> list[tuple[str, str]]:
    """(flag, subject) of what was left out."""
    return [(flagged.flag.value, flagged.subject) for flagged in result.flagged]
