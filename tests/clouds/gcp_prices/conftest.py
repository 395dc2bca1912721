"""The price sources of GCP against a loopback GCP: connections, a small cloud, and what a poll found."""

from __future__ import annotations

from datetime import datetime

import pytest

from providers.collect.facts import PollResult
from providers.gcp.prices.list_history import ListHistory
from providers.gcp.prices.list_prices import ListPrices
from providers.gcp.session import Connections
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus, sku
from tests.clouds.server import LoopbackServer

NOW = 1_790_000_000_000
HERE = "us-central1"
ZONE = "us-central1-a"
A2 = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
A2_PRICES = {"on_demand": 12 * 0.03 + 85 * 0.004 + 2.9, "spot": 12 * 0.01 + 85 * 0.001 + 0.9}


@pytest.fixture(scope="module")
def connections(server: LoopbackServer, environment: pytest.MonkeyPatch) -> Connections:
    return Connections("p", server.url, call_s=0.5, patience_s=0.0)


@pytest.fixture
def poll(connections: Connections, server: LoopbackServer):
    """One region, read by a source that has read nothing before."""

    def read(region: str = HERE) -> PollResult:
        source = ListPrices(billing=server.url, attempts=1, call_s=0.5, connections=connections)
        return source.poll(region, NOW, None)

    connections._zones = None
    return read


def cloud(*machines: GcpMachine, skus: list | None = None, cards: dict[str, int] | None = None, **fields) -> GcpCloud:
    return GcpCloud({ZONE: GcpZone(list(machines), cards or {})}, a2_skus([HERE]) if skus is None else skus, **fields)


def prices(result: PollResult) -> dict[str, float]:
    """Dollars by what comes after the zone."""
    return {point.offer_id.split("/", 3)[3]: round(point.nano_usd_per_hour / 1e9, 6) for point in result.points}


def parts(word: str, core: float, ram: float, regions: list[str]) -> list[dict]:
    return [
        sku(f"{word} Instance Core running in Americas", core, regions),
        sku(f"{word} Instance Ram running in Americas", ram, regions, unit="GiBy.h"),
        sku(f"Spot Preemptible {word} Instance Core running in Americas", core / 2, regions, "Preemptible"),
        sku(
            f"Spot Preemptible {word} Instance Ram running in Americas", ram / 2, regions, "Preemptible", unit="GiBy.h"
        ),
    ]


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


@pytest.fixture
def list_history(connections: Connections, server: LoopbackServer):
    """What the catalog tells of the past, read by a source that has read nothing before."""
    connections._zones = None

    def read(now: str, since_ms: int | None = None, **options) -> PollResult:
        source = ListHistory(billing=server.url, attempts=1, call_s=0.5, connections=connections, **options)
        return source.poll(HERE, millis(now), since_ms)

    return read


def repriced(*changes: tuple[str, float], since: str = "2026-01-01T00:00:00Z") -> list[dict]:
    """An a2 machine's SKUs, of which the GPU's on-demand price has changed so often; the rest is as old as `since`."""
    skus = a2_skus([HERE])
    for each in skus:
        each["pricingInfo"][0]["effectiveTime"] = since
    [gpu] = [each for each in skus if each["description"].startswith("Nvidia Tesla A100 GPU running")]
    gpu["pricingInfo"] = [sku("x", usd, [HERE], since=at)["pricingInfo"][0] for at, usd in changes]
    return skus
