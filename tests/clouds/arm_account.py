"""An account on the loopback Azure Resource Manager, with machines that run nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.azure.settings import Settings
from providers.base import LaunchSpec
from providers.clock import VirtualClock
from tests.clouds.arm import GROUP, IMAGE, SUBSCRIPTION, Arm
from tests.clouds.azure import AzureCloud, resource_sku, row
from tests.clouds.server import Fault, LoopbackServer, Request
from tests.clouds.still import Still

NOW_MS = 1_790_000_000_000
GPU, CPU = "Standard_NC24ads_A100_v4", "Standard_D4s_v5"
SPOT, ON_DEMAND = f"azure/eastus//{GPU}/spot", f"azure/eastus//{GPU}/on_demand"


@dataclass
class Account:
    """A provider, and the cloud behind it; `shop` has its price list, which needs no account."""

    server: LoopbackServer
    shop: LoopbackServer
    arm: Arm
    prices: AzureCloud
    clock: VirtualClock
    connections: Connections

    def connect(self, **options: Any) -> AzureProvider:
        settings = Settings(
            SUBSCRIPTION,
            GROUP,
            ("eastus", "westus2"),
            (GPU, CPU),
            ":".join((*IMAGE, "latest")),
            100,
            prices=f"{self.shop.url}/api/retail/prices",
        )
        return AzureProvider(replace(settings, **options), self.clock, self.connections)

    def asked(self, method: str, part: str = "/virtualMachines/") -> list[Request]:
        requests = [*self.server.requests, *self.shop.requests]
        return [each for each in requests if each.method == method and part in each.path]

    def fails(self, method: str, part: str = "/virtualMachines/", *, times: int | None = 1, **how: Any) -> None:
        """Calls of this method, whose path has this part, fail."""

        def match(request: Request) -> bool:
            return request.method == method and part in request.path

        for server in (self.server, self.shop):
            server.faults.append(Fault(match, times, **how))


def spec(offer_id: str = SPOT, *, token: str = "token-1", **options: Any) -> LaunchSpec:
    tags = {"tradewind-install": "tw-1", "tradewind-job": "job-1"}
    return LaunchSpec(token, offer_id, options.pop("user_data", "sleep 1\n"), tags, **options)


def opened(server: LoopbackServer, shop: LoopbackServer, connections: Connections, install: str | None) -> Account:
    """An account of which this installation has its networks; None: there are none."""
    clock = VirtualClock(start_ms=NOW_MS)
    rows, skus = [], []
    for region, factor in (("eastus", 1.0), ("westus2", 2.0)):
        for size, usd_per_hour in ((GPU, 3.67), (CPU, 0.192)):
            rows += [row(region, size, usd_per_hour * factor), row(region, size, usd_per_hour * factor / 4, spot=True)]
        skus.append(resource_sku(GPU, region, gpus=1, vcpus=24, memory_gb=220))
        skus.append(resource_sku(CPU, region, gpus=0, vcpus=4, memory_gb=16))
    prices = AzureCloud(rows, skus, base=server.url)
    prices.forward = arm = Arm(clock, prices, lambda _, user_data: Still(user_data))
    if install is not None:
        arm.connect(install, "eastus", "westus2")
    server.serve(prices)
    shop.serve(replace(prices, base=shop.url))
    return Account(server, shop, arm, prices, clock, connections)
