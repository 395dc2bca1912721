"""RentedAzure: the loopback Azure Resource Manager as a place of histories."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.azure.settings import Settings
from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Bill
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import OfferId
from tests.clouds.arm import GROUP, IMAGE, SUBSCRIPTION, Arm, Vm
from tests.clouds.azure import THROTTLED, AzureCloud, Token, loopback_tls, resource_sku, row
from tests.clouds.server import LoopbackServer, Request, Response, serving
from tests.rig.clouds.rented import PATIENT_S, Guest, Make, RentedCloud, Weather, ms, offer, texts
from tests.rig.clouds.scene import StagedServer, staged

SIZE = "Standard_NC24ads_A100_v4"
REGIONS = ("eastus", "westus2")
_KIND = re.compile(r"/(virtualmachines|sshpublickeys|virtualnetworks|networksecuritygroups)(?:/([^/]+))?(/.*)?$", re.I)
_WORDS = {
    "virtualmachines": "machine",
    "sshpublickeys": "record",
    "virtualnetworks": "network",
    "networksecuritygroups": "firewall",
}


class RentedAzure(RentedCloud):
    """Two spot pools and one on demand, in two regions. What a machine's disk, interface and address are is
    `Arm.beside`."""

    name = "azure"
    offers = (
        *(offer("azure", region, "", SIZE, spot=True) for region in REGIONS),
        offer("azure", REGIONS[0], "", SIZE, spot=False),
    )
    notice_s = 30.0
    launches = "PUT machine"
    machine_requests = (
        "PUT record", "PUT machine", "PATCH record", "PATCH machine", "DELETE machine", "DELETE record",
        "GET operation",
    )  # fmt: skip
    network_requests = (
        "PUT group", "PUT firewall", "PUT network", "DELETE network", "DELETE firewall", "DELETE record",
        "DELETE group",
    )  # fmt: skip
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "launch": ("PUT record", "PUT machine", "PATCH record", "GET operation"),
        "terminate": ("DELETE machine", "PATCH record"),
        "renew": ("PATCH machine",),
        "describe": ("DELETE machine", "PATCH record", "GET machine"),
        "list_owned": ("DELETE machine", "PATCH record", "GET machine"),
    }
    throttled = THROTTLED
    settings: ClassVar[Mapping[str, object]] = {
        "providers.azure.subscription": SUBSCRIPTION,
        "providers.azure.resource_group": GROUP,
        "providers.azure.regions": list(REGIONS),
        "providers.azure.instance_types": [SIZE],
        "providers.azure.image": ":".join((*IMAGE, "latest")),
    }
    together = frozenset({"launch", "describe", "find", "list_owned"})

    def __init__(
        self, clock: VirtualClock, weather: Weather, seed: int, connections: Connections, url: str, shop: LoopbackServer
    ) -> None:
        super().__init__(clock, weather)
        self._connections = connections
        rows = [row(region, SIZE, 3.67) for region in REGIONS]
        rows += [row(region, SIZE, price, spot=True) for region, price in zip(REGIONS, (0.66, 0.7), strict=True)]
        skus = [resource_sku(SIZE, region, gpus=1, vcpus=24, memory_gb=220) for region in REGIONS]
        self.lists = AzureCloud(rows, skus, page_rows=100, base=url)
        self.lists.forward = self.arm = Arm(clock, self.lists, lambda *_: Guest())
        self.arm.chance = chance = random.Random(f"arm {seed}")
        self.arm.lag_s, self.arm.pending_s, self.arm.ending_s = weather.lag_s, weather.pending_s, weather.ending_s
        self.arm.capacity_is_late = chance.random() < 0.5
        self.arm.retry_after_s = chance.choice((0, 5))
        self._image = ":".join((*IMAGE, "latest"))
        self._prices = f"{shop.url}/api/retail/prices"
        shop.serve(replace(self.lists, base=shop.url))

    def connect(self) -> Provider:
        settings = Settings(SUBSCRIPTION, GROUP, REGIONS, (SIZE,), self._image, 100, prices=self._prices)
        return AzureProvider(settings, self.clock, self._connections)

    def serve(self, request: Request) -> Response:
        return self.lists(request)

    def named(self, request: Request) -> tuple[str, str]:
        if "/operations/" in request.path:
            return f"{request.method} operation", ""
        if found := _KIND.search(request.path):
            return f"{request.method} {_WORDS[found[1].lower()]}", found[2] or ""
        is_group = re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/[^/]+", request.path, re.I)
        name = "group" if is_group else request.path.rpartition("/")[2]
        return f"{request.method} {name}", f"{request.path} {sorted(request.query.items())}"  # several may be under way

    def _all(self) -> Iterator[tuple[Instance, int]]:
        self.arm.alive()
        for each in [*self.arm.gone, *self.arm.vms.values()]:
            yield self._shown(each), 0 if each.refusal is not None else self.arm.cost_nano_usd_of(each)

    def _shown(self, each: Vm) -> Instance:
        name, where = f"azure-{each.row['location']}-{each.name}", each.row["location"]
        guest = each.machine if isinstance(each.machine, Guest) else Guest(off=True)
        if each in self.arm.gone:
            state = InstanceState.TERMINATED
        elif each.state in ("Deleting", "Failed") or (guest.off and each.state != "Creating"):
            state = InstanceState.STOPPING
        else:
            state = InstanceState.PENDING if each.state == "Creating" else InstanceState.RUNNING
        billed = (None, None) if each.refusal is not None else (ms(each.began_at), ms(each.ended_at))
        reason = self.reasons.get(name, EndReason.USER) if state is InstanceState.TERMINATED else None
        return Instance(
            name, "azure", offer("azure", where, "", SIZE, spot=each.spot), each.tags["tradewind-token"], state,
            *billed, reason, guest.deadline_ms, each.tags,
        )  # fmt: skip

    def ends_unknown(self, bill: Bill) -> bool:
        """Azure forgets a machine that it took or deleted. When, only the answer to the request to delete it says."""
        noted = {(name, _own(bill.instance_id)) for name in ("DELETE machine", "GET record", "PATCH record")}
        return bill.end_reason is EndReason.PREEMPTED or bool(self.disturbed & noted)

    def left(self) -> list[str]:
        return texts([each.name for each in self.arm.alive()], "machine") + sorted(self.arm.beside)

    def parts(self) -> list[str]:
        networks = self.arm.networks
        return [
            *sorted(networks.resources),
            *texts(list(self.arm.keys), "record"),
            *texts(list(networks.groups), "group"),
        ]

    def set_capacity(self, offer_id: str, machines: int | None) -> None:
        wanted = OfferId.parse(offer_id)
        pool = (wanted.region, SIZE, wanted.spot)
        self.arm.capacity.pop(pool, None)
        if machines is not None:
            self.arm.capacity[pool] = machines

    def _capacity(self, offer_id: str) -> int | None:
        wanted = OfferId.parse(offer_id)
        return self.arm.capacity.get((wanted.region, SIZE, wanted.spot))

    def _taken(self, instance_id: str) -> None:
        self.arm.take(_own(instance_id))

    def _announce(self, instance_id: str) -> None:
        vm = self.arm.vms[_own(instance_id)]
        assert vm.machine is not None
        self._guest(instance_id).deadline_ms = self.clock.now_ms() + round(self.notice_s * 1000)

    def _guest(self, instance_id: str) -> Guest:
        vm = self.arm.vms.get(_own(instance_id))
        return vm.machine if vm is not None and isinstance(vm.machine, Guest) else Guest()


@contextmanager
def account(folder: Path) -> Iterator[tuple[type[RentedAzure], StagedServer, Make]]:
    """A server over TLS, whose certificate is put into `folder`, and what opens subscriptions there."""
    context, authority = loopback_tls(folder)
    with staged(context) as server, serving(AzureCloud()) as shop:
        connections = Connections(SUBSCRIPTION, server.url, authority, Token(), call_s=PATIENT_S, attempts=1)

        def make(clock: VirtualClock, weather: Weather, seed: int) -> RentedAzure:
            return RentedAzure(clock, weather, seed, connections, server.url, shop)

        yield RentedAzure, server, make


def _own(instance_id: str) -> str:
    return "tw-" + instance_id.partition("-tw-")[2]
