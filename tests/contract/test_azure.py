"""The provider of Azure keeps the contract, through the unmodified azure-mgmt-compute, on a loopback Azure Resource
Manager whose machines run.

Its clock, and that of the machines, is the test's. One rule of the contract cannot be kept: a machine that nobody
renews ends by itself, but Azure bills it until somebody deletes it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.azure.settings import Settings
from providers.base import Provider
from providers.clock import VirtualClock
from providers.instance import EndReason, InstanceState
from providers.machine.lifetime import LIVES
from providers.testing import ProviderContract
from tests.clouds.arm import GROUP, IMAGE, SUBSCRIPTION, Arm, Vm
from tests.clouds.azure import AzureCloud, Token, loopback_tls, resource_sku, row
from tests.clouds.machine_clock import HURRY_S, PROGRAMS, MachineClock
from tests.clouds.machines import host_of, runner
from tests.clouds.scheduled_events import machines_of
from tests.clouds.server import Fault, LoopbackServer, Request, serving
from tests.machines.lab import Host, Laboratory, laboratory

SIZE, VCPUS = "Standard_NC24ads_A100_v4", 24


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory([]) as lab:
        yield lab


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackServer]:
    context, authority = loopback_tls(tmp_path_factory.mktemp("tls"))
    with serving(AzureCloud(), context) as server, serving(AzureCloud()) as TestAzure.shop:
        TestAzure.connections = Connections(SUBSCRIPTION, server.url, authority, Token(), call_s=15.0, attempts=1)
        yield server


class TestAzure(ProviderContract):
    connections: ClassVar[Connections]
    shop: ClassVar[LoopbackServer]  # has the price list, which needs no account
    offer_id = f"azure/eastus//{SIZE}/spot"
    other_offer_id = f"azure/westus2//{SIZE}/spot"
    late_s = 65.0  # a minute in which nobody asks, and one interval

    @pytest.fixture(autouse=True)
    def _cloud(self, lab: Laboratory, server: LoopbackServer) -> Iterator[None]:
        self.clock = VirtualClock(start_ms=1_790_000_000_000)
        regions = "eastus", "westus2"
        rows = [row(region, SIZE, 3.67) for region in regions] + [
            row(region, SIZE, 0.66, spot=True) for region in regions
        ]
        skus = [resource_sku(SIZE, region, gpus=1, vcpus=VCPUS, memory_gb=220) for region in regions]
        cloud = AzureCloud(rows, skus, base=server.url)
        self.cloud_server = server
        self.machines = MachineClock(self.clock, self._keeping)
        start = machines_of(
            runner(lab, PROGRAMS, self.machines.show), lambda: self.arm.now(), lambda name: self.arm.approved(name)
        )
        cloud.forward = self.arm = Arm(self.clock, cloud, start)
        self.arm.connect(self.install, *regions)
        server.serve(cloud)
        self.shop.serve(replace(cloud, base=self.shop.url))
        yield
        self.arm.end_all()

    def test_a_machine_ends_with_its_work(self) -> None:
        """Azure would only stop and bill it: the next look at it deletes it."""
        provider = self.connect()
        (name,) = provider.launch(replace(self.spec(), user_data="exit 0\n"))
        host, give_up = self._host(self.arm.alive()[0]), time.monotonic() + 20
        while not host.ended:
            assert time.monotonic() < give_up, host.processes()
            time.sleep(HURRY_S)
        ended = self.until(provider, name, lambda found: not found.alive)
        assert ended.end_reason is EndReason.FAILED
        assert not self.arm.alive()
        assert not self.arm.beside

    @pytest.mark.parametrize("killed", ["-I -S - 3600", "bash /var/lib/user-data", "sleep 1000"])
    def test_whatever_process_of_a_machine_dies_the_machine_ends(self, killed: str) -> None:
        """The work, what guards its time, and what waits for both."""
        provider = self.connect()
        (name,) = provider.launch(self.spec(time_to_live_s=3600))
        (vm,) = self.arm.alive()
        host, give_up = self._host(vm), time.monotonic() + 20
        while not (found := [pid for pid, line in host.processes().items() if killed in line]):
            assert time.monotonic() < give_up, host.processes()
            time.sleep(HURRY_S)
        self.machines.looked()
        os.kill(found[0], signal.SIGKILL)
        self.until(provider, name, lambda found: not found.alive)
        assert host.ended

    def test_what_has_ended_by_itself_is_billed_until_somebody_looks(self) -> None:
        """Azure bills a machine that is off."""
        provider = self.connect()
        (name,) = provider.launch(self.spec(time_to_live_s=3600))
        self.until(provider, name, lambda found: found.state is InstanceState.RUNNING)
        (vm,) = self.arm.alive()
        self.advance(3600 + 60)
        assert self._host(vm).ended
        ended = self.until(self.connect(), name, lambda found: not found.alive)
        assert ended.end_reason is EndReason.EXPIRED
        assert vm.ended_at is not None
        assert ended.billed_to_ms == round(vm.ended_at.timestamp() * 1000)

    def test_listing_machines_deletes_those_whose_time_is_over(self) -> None:
        """So the billing of a forgotten machine ends with the next sweep."""
        provider = self.connect()
        provider.launch(self.spec(time_to_live_s=3600))
        self.advance(3600)
        self.connect().list_owned(self.install)
        assert not self.arm.alive()

    def connect(self) -> Provider:
        image = ":".join((*IMAGE, "latest"))
        prices = f"{self.shop.url}/api/retail/prices"
        settings = Settings(SUBSCRIPTION, GROUP, ("eastus", "westus2"), (SIZE,), image, 100, prices=prices)
        return AzureProvider(settings, self.clock, self.connections)

    def limit_capacity(self, machines: int) -> bool:
        self.arm.capacity["eastus", SIZE, True] = machines
        return True

    def limit_quota(self, machines: int) -> bool:
        self.arm.quota["lowPriorityCores"] = machines * VCPUS
        return True

    def lose_reply(self, call: str) -> bool:
        method = {"launch": "PUT", "terminate": "DELETE"}[call]

        def match(request: Request) -> bool:
            return request.method == method and "/virtualMachines/" in request.path

        self.cloud_server.faults.append(Fault(match, 1, lost=True))
        return True

    def take_away(self, instance_id: str) -> bool:
        self.arm.take(instance_id.removeprefix("azure-eastus-"))
        return True

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.machines.advance(market_s)

    def _keeping(self) -> list[tuple[Host, int]]:
        guarded = [each for each in self.arm.alive() if LIVES in each.tags and each.machine is not None]
        return [(self._host(each), self._due_ms(each)) for each in guarded]

    def _host(self, vm: Vm) -> Host:
        assert vm.machine is not None
        return host_of(vm.machine)

    def _due_ms(self, vm: Vm) -> int:
        seconds, _, since_ms = vm.tags[LIVES].partition(" from ")
        return int(since_ms or vm.began_at.timestamp() * 1000) + int(seconds) * 1000
