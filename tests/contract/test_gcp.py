"""The provider of GCP keeps the contract, through the unmodified google-cloud-compute, on a loopback Compute Engine
whose machines run.

Its clock, and that of the machines, is the test's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import pytest

from providers.base import Provider
from providers.clock import VirtualClock
from providers.gcp.names import network_name
from providers.gcp.provider import GcpProvider
from providers.gcp.session import Connections
from providers.gcp.settings import Settings
from providers.instance import EndReason
from providers.machine.lifetime import LIVES
from providers.testing import ProviderContract
from tests.clouds.compute import FAMILY, PROJECT, Compute, Vm
from tests.clouds.gce_metadata import machines_of
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus
from tests.clouds.machine_clock import PROGRAMS, MachineClock
from tests.clouds.machines import host_of, runner
from tests.clouds.server import Fault, LoopbackServer, Request, serving
from tests.machines.lab import Host, Laboratory, laboratory

ZONE = "us-central1-a"
KIND = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
LARGER = GcpMachine("a2-highgpu-2g", "nvidia-tesla-a100", 2)


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory([]) as lab:
        yield lab


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with serving(GcpCloud({})) as server:
        TestGcp.connections = Connections(PROJECT, server.url)  # its clients take a second to make
        TestGcp.url = server.url
        yield server


class TestGcp(ProviderContract):
    connections: ClassVar[Connections]
    url: ClassVar[str]
    offer_id = f"gcp/us-central1/{ZONE}/{KIND.name}/spot"

    @pytest.fixture(autouse=True)
    def _cloud(self, lab: Laboratory, server: LoopbackServer) -> Iterator[None]:
        self.clock = VirtualClock(start_ms=1_790_000_000_000)
        lists = GcpCloud({ZONE: GcpZone([KIND, LARGER]), "us-central1-b": GcpZone([KIND])}, a2_skus(["us-central1"]))
        self.machines = MachineClock(self.clock, self._keeping)
        start = machines_of(runner(lab, PROGRAMS, self.machines.show))
        lists.forward = self.gce = Compute(self.clock, lists, lambda _: "1.1", start)
        self.gce.networks.add(network_name(self.install))
        server.serve(lists)
        self.cloud_server = server
        self.connections._zones = None
        yield
        self.gce.end_all()

    def test_a_machine_ends_with_its_work_and_leaves_no_disk(self) -> None:
        """A machine that shuts down is only stopped: its disk costs money until a list of machines deletes it."""
        provider = self.connect()
        (name,) = provider.launch(replace(self.spec(), user_data="exit 0\n"))
        ended = self.until(provider, name, lambda found: not found.alive)
        assert ended.end_reason is EndReason.FAILED
        assert len(self.gce.left()) == 1
        assert not provider.list_owned(self.install)
        assert not self.gce.left()
        assert provider.describe([name]) == [ended]

    other_offer_id = f"gcp/us-central1/us-central1-b/{KIND.name}/spot"

    def limit_capacity(self, machines: int) -> bool:
        self.gce.capacity[KIND.name, ZONE, True] = machines
        return True

    next_door = other_offer_id
    other_type = f"gcp/us-central1/{ZONE}/{LARGER.name}/spot"

    def limit_capacity_next_door(self, machines: int) -> bool:
        self.gce.capacity[KIND.name, "us-central1-b", True] = machines
        return True

    def limit_quota(self, machines: int) -> bool:
        self.gce.quota["NVIDIA_A100_GPUS"] = machines
        return True

    def lose_reply(self, call: str) -> bool:
        method, part = {"launch": ("POST", "/instances"), "terminate": ("DELETE", "/instances/")}[call]

        def match(request: Request) -> bool:
            return request.method == method and part in request.path

        self.cloud_server.faults.append(Fault(match, 1, lost=True))
        return True

    def announce_end(self, instance_id: str) -> bool:
        """That of its longest run: a notice to a spot machine is shown only inside of it."""
        self.gce.limit_run("tw-" + instance_id.partition("-tw-")[2], timedelta(minutes=5))
        return True

    def take_away(self, instance_id: str) -> bool:
        self.gce.take("tw-" + instance_id.partition("-tw-")[2])
        return True

    def connect(self) -> Provider:
        image = f"projects/debian-cloud/global/images/family/{FAMILY}"
        settings = Settings(("us-central1",), (KIND.name, LARGER.name), image, 100, catalog=self.url)
        return GcpProvider(settings, self.clock, self.connections)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.machines.advance(market_s)

    def _keeping(self) -> list[tuple[Host, int]]:
        return [(host_of(each.machine), _due_ms(each)) for each in self.gce.alive() if LIVES in each.metadata]


def _due_ms(vm: Vm) -> int:
    seconds, _, since_ms = vm.metadata[LIVES].partition(" from ")
    return int(since_ms or vm.began_at.timestamp() * 1000) + int(seconds) * 1000
