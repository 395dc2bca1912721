"""The price sources of AWS against a loopback AWS: connections, a small cloud, and what a poll found."""

from __future__ import annotations

import pytest

from providers.aws.prices.on_demand import OnDemandPrices
from providers.aws.prices.spot import SpotPrices
from providers.aws.session import Connections
from providers.collect.facts import PollResult
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change, error
from tests.clouds.server import Fault, LoopbackServer

NOW = 1_790_000_000_000
HOUR = 3_600_000
P4D = "p4d.24xlarge"
A_SPOT = f"aws/us-east-1/use1-az1/{P4D}/spot"


def region(*changes: Change, zones: tuple[str, ...] = ("use1-az1", "use1-az2"), **fields) -> AwsRegion:
    offered = {(P4D, index) for index in range(len(zones))}
    return AwsRegion(list(zones), list(changes), **{"offered": offered, **fields})


def cloud(*changes: Change, **fields) -> AwsCloud:
    return AwsCloud({"us-east-1": region(*changes)}, {P4D: AwsType(P4D)}, **fields)


@pytest.fixture(scope="module")
def connections(server: LoopbackServer, environment: pytest.MonkeyPatch) -> Connections:
    """One attempt and short timeouts, so that nothing here waits."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "AKIALOOPBACK", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        environment.setenv(name, value)
    return Connections(connect_s=1.0, read_s=0.3, attempts=1)


@pytest.fixture
def spot(connections: Connections) -> SpotPrices:
    return SpotPrices(connections=connections)


@pytest.fixture
def on_demand(connections: Connections, server: LoopbackServer) -> OnDemandPrices:
    return OnDemandPrices(connections=connections, files=server.url, attempts=1)


def history(result: PollResult, offer_id: str = A_SPOT) -> list[tuple[int, float]]:
    """(hours before now, dollars) of an offer."""
    points = [point for point in result.points if point.offer_id == offer_id]
    return [((point.effective_at_ms - NOW) // HOUR, point.nano_usd_per_hour / 1e9) for point in points]


def answers(code: str, message: str = "x", status: int = 400) -> Fault:
    return Fault(lambda request: True, None, error(code, message, status))


def listed(**usd: str) -> AwsCloud:
    here = cloud()
    here.regions["us-east-1"].on_demand_usd = {name.replace("_", "."): price for name, price in usd.items()}
    return here


def prices(result: PollResult) -> dict[str, float]:
    return {point.offer_id: point.nano_usd_per_hour / 1e9 for point in result.points}
