"""RentedGcp: the loopback Compute Engine as a place of histories."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from providers.base import Provider
from providers.clock import VirtualClock
from providers.gcp.provider import GcpProvider
from providers.gcp.session import Connections
from providers.gcp.settings import Settings
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import OfferId
from tests.clouds.compute import FAMILY, PROJECT, Compute, Vm
from tests.clouds.gcp import THROTTLED, GcpCloud, GcpMachine, GcpZone, a2_skus
from tests.clouds.server import Request, Response
from tests.rig.clouds.rented import PATIENT_S, Guest, Make, RentedCloud, Weather, ms, offer, texts
from tests.rig.clouds.scene import StagedServer, staged

KIND = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
ZONES = ("us-central1-a", "us-central1-b", "us-west1-a")
REGIONS = ("us-central1", "us-west1")
IMAGE = f"projects/debian-cloud/global/images/family/{FAMILY}"
ON_DEMAND_USD = f"{KIND.vcpu * 0.03 + 85 * 0.004 + 2.9:.4f}"
SPOT_USD = f"{KIND.vcpu * 0.01 + 85 * 0.001 + 0.9:.4f}"
_STATES = {
    "PROVISIONING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "STOPPING": InstanceState.STOPPING,
    "TERMINATED": InstanceState.STOPPING,  # its disk is still there
}


class RentedGcp(RentedCloud):
    """Three spot pools and one on demand, in two regions."""

    name = "gcp"
    offers = (
        *(offer("gcp", zone[:-2], zone, KIND.name, spot=True) for zone in ZONES),
        offer("gcp", "us-central1", ZONES[0], KIND.name, spot=False),
    )
    notice_s = 120.0
    launches = "POST instances"
    machine_requests = ("POST instances", "POST bulkInsert", "POST wait", "DELETE instances", "POST setMetadata")
    network_requests = ("POST networks", "POST firewalls", "POST wait", "DELETE networks", "DELETE firewalls")
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "launch": ("POST instances", "POST bulkInsert", "POST wait"),
        "terminate": ("DELETE instances",),
        "renew": ("POST setMetadata",),
        "list_owned": ("DELETE instances", "GET instances"),
    }
    throttled = THROTTLED
    settings: ClassVar[Mapping[str, object]] = {
        "providers.gcp.regions": list(REGIONS),
        "providers.gcp.machine_types": [KIND.name],
        "providers.gcp.image": IMAGE,
        "providers.gcp.project": PROJECT,
    }

    def __init__(self, clock: VirtualClock, weather: Weather, seed: int, connections: Connections, url: str) -> None:
        super().__init__(clock, weather)
        self._connections, self._url = connections, url
        self.lists = GcpCloud({zone: GcpZone([KIND]) for zone in ZONES}, a2_skus(list(REGIONS)), page_rows=100)
        self.lists.forward = self.gce = Compute(clock, self.lists, _usd_per_hour, lambda _: Guest())
        self.gce.chance = chance = random.Random(f"gce {seed}")
        self.gce.lag_s, self.gce.pending_s, self.gce.ending_s = weather.lag_s, weather.pending_s, weather.ending_s
        self.gce.refuses_late = chance.random() < 0.7
        self.gce.networks.takes_s = chance.choice((0.0, 5.0))

    def connect(self) -> Provider:
        settings = Settings(REGIONS, (KIND.name,), IMAGE, 100, catalog=self._url)
        return GcpProvider(settings, self.clock, self._connections)

    def serve(self, request: Request) -> Response:
        return self.lists(request)

    def named(self, request: Request) -> tuple[str, str]:
        words = request.path.rstrip("/").split("/")
        of_one = words[-1] not in ("instances", "bulkInsert", "setMetadata", "wait", "networks", "firewalls")
        kind = words[-2] if of_one and len(words) > 1 and request.method in ("DELETE", "GET") else words[-1]
        about = words[-1] if of_one else words[-2] if kind == "setMetadata" else ""
        reads = request.method == "GET" and not of_one  # several may be under way
        return f"{request.method} {kind}", f"{request.path} {sorted(request.query.items())}" if reads else about

    def _all(self) -> Iterator[tuple[Instance, int]]:
        self.gce.left()
        for each in self.gce.vms:
            yield self._shown(each), self.gce.cost_nano_usd_of(each)

    def _shown(self, each: Vm) -> Instance:
        guest, name = each.machine, f"gcp-{each.zone}-{each.row.name}"
        assert isinstance(guest, Guest)
        launch = json.loads(each.metadata["tradewind-launch"])
        state = InstanceState.TERMINATED if each.deleted else _STATES[each.row.status]
        reason = self.reasons.get(name, EndReason.USER) if each.deleted else None
        return Instance(
            name, "gcp", offer("gcp", each.zone[:-2], each.zone, each.kind, spot=each.spot), launch["token"], state,
            ms(each.began_at), ms(each.ended_at), reason, guest.deadline_ms, launch["tags"],
        )  # fmt: skip

    def left(self) -> list[str]:
        return texts([each.row.name for each in self.gce.left()], "machine or disk of")

    def parts(self) -> list[str]:
        return self.gce.networks.parts

    def set_capacity(self, offer_id: str, machines: int | None) -> None:
        wanted = OfferId.parse(offer_id)
        pool = (KIND.name, wanted.zone, wanted.spot)
        self.gce.capacity.pop(pool, None)
        if machines is not None:
            self.gce.capacity[pool] = machines

    def _capacity(self, offer_id: str) -> int | None:
        wanted = OfferId.parse(offer_id)
        return self.gce.capacity.get((KIND.name, wanted.zone, wanted.spot))

    def _taken(self, instance_id: str) -> None:
        self.gce.take(_own(instance_id))

    def _announce(self, instance_id: str) -> None:
        self.gce.announce(_own(instance_id))

    def _guest(self, instance_id: str) -> Guest:
        guest = self.gce.named(_own(instance_id)).machine
        assert isinstance(guest, Guest)
        return guest


@contextmanager
def account(_folder: Path) -> Iterator[tuple[type[RentedGcp], StagedServer, Make]]:
    """A server, and what opens projects there."""
    with staged() as server:
        connections = Connections(PROJECT, server.url, call_s=PATIENT_S, patience_s=0.0)
        yield RentedGcp, server, lambda clock, weather, seed: RentedGcp(clock, weather, seed, connections, server.url)


def _usd_per_hour(vm: Vm) -> str:
    return SPOT_USD if vm.spot else ON_DEMAND_USD


def _own(instance_id: str) -> str:
    return "tw-" + instance_id.partition("-tw-")[2]
