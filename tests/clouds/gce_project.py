"""A project at the loopback Compute Engine, for tests whose machines run nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.gcp.names import network_name
from providers.gcp.provider import GcpProvider
from providers.gcp.session import Connections
from providers.gcp.settings import Settings
from tests.clouds.compute import FAMILY, Compute, Vm
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus, sku
from tests.clouds.server import Fault, LoopbackServer, Request
from tests.clouds.still import Still

HOUR_S = 3600
NOW_MS = 1_790_000_000_000
ZONES = ("us-central1-a", "us-central1-b", "europe-west4-a")
A2 = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
E2 = GcpMachine("e2-standard-4", vcpu=4, memory_mb=16 * 1024)
N1 = GcpMachine("n1-standard-8", vcpu=8, memory_mb=30 * 1024)
C4 = GcpMachine("c4-standard-8", vcpu=8, memory_mb=30 * 1024)
TYPES = (A2.name, E2.name, "n1-standard-8+1xnvidia-tesla-t4", C4.name)
SPOT = f"gcp/us-central1/us-central1-a/{A2.name}/spot"
ON_DEMAND = f"gcp/us-central1/us-central1-b/{E2.name}/on_demand"
IMAGES = "projects/debian-cloud/global/images"
SKUS = [
    *a2_skus(["us-central1", "europe-west4"]),
    sku("E2 Instance Core running in Americas", 0.02, ["us-central1"]),
    sku("E2 Instance Ram running in Americas", 0.003, ["us-central1"]),
    sku("Spot Preemptible E2 Instance Core running in Americas", 0.01, ["us-central1"], "Preemptible"),
    sku("Spot Preemptible E2 Instance Ram running in Americas", 0.001, ["us-central1"], "Preemptible"),
]


@dataclass
class Project:
    """A provider, and the cloud behind it."""

    server: LoopbackServer
    gce: Compute
    clock: VirtualClock
    connections: Connections

    def connect(self, **options: Any) -> GcpProvider:
        settings = Settings(
            ("us-central1", "europe-west4"), TYPES, f"{IMAGES}/family/{FAMILY}", 100, catalog=self.server.url
        )
        return GcpProvider(replace(settings, **options), self.clock, self.connections)

    def launches(self) -> list[Request]:
        return [each for each in self.server.requests if each.method == "POST" and _creates(each)]

    def asked(self) -> dict[str, Any]:
        """The newest machine that was asked for."""
        return dict(json.loads(self.launches()[-1].body))

    def fails(self, method: str, part: str, *, times: int | None = 1, **how: Any) -> None:
        """Requests of this method to paths with this part fail."""
        self.server.faults.append(
            Fault(lambda request: request.method == method and part in request.path, times, **how)
        )


def the_machine(project: Project) -> Vm:
    """The only one that there is or was."""
    (machine,) = project.gce.vms
    return machine


def _creates(request: Request) -> bool:
    return request.path.endswith(("/instances", "/bulkInsert"))


def spec(offer_id: str = SPOT, *, token: str = "token-1", **options: Any) -> LaunchSpec:
    tags = {"tradewind-install": "tw-1", "tradewind-job": "Job 1"}
    return LaunchSpec(token, offer_id, options.pop("user_data", "sleep 1\n"), tags, **options)


def any_spec(offer_id: str = SPOT, *, zones: tuple[str, ...] = ZONES[1:2], **options: Any) -> LaunchSpec:
    """A launch in the zone of an offer, or in any of these."""
    zone = offer_id.split("/")[2]
    return replace(
        spec(offer_id, **options), also=tuple(offer_id.replace(f"/{zone}/", f"/{other}/") for other in zones)
    )


def opened(server: LoopbackServer, connections: Connections) -> Project:
    """A project whose network has been made."""
    clock = VirtualClock(start_ms=NOW_MS)
    zones = {zone: GcpZone([A2, E2, N1, C4], {"nvidia-tesla-t4": 4}) for zone in ZONES}
    lists = GcpCloud(zones, SKUS, page_rows=50)
    lists.forward = gce = Compute(clock, lists, lambda _: "1", lambda _: Still())
    connections._zones = None
    gce.networks.add(network_name("tw-1"))
    server.serve(lists)
    return Project(server, gce, clock, connections)
