"""A loopback cloud bills a machine until the time that it says, however long its own work takes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from providers.azure.session import Connections as AzureConnections
from providers.base import Provider
from providers.clock import VirtualClock
from tests.clouds import arm_account, ec2_account, gce_project
from tests.clouds.arm import Vm as AzureVm
from tests.clouds.compute import Vm as GcpVm
from tests.clouds.ec2 import Instance as Ec2Instance
from tests.clouds.present import Present
from tests.clouds.server import LoopbackServer
from tests.clouds.still import Still

WORK_S, LIFE_S = 1.3, 600


@dataclass
class Slow(VirtualClock):
    """A clock that has moved on whenever it is read again."""

    def now_ms(self) -> int:
        self.advance(WORK_S)
        return super().now_ms()


def agree(provider: Provider, name: str, machine: AzureVm | GcpVm | Ec2Instance) -> None:
    """What the client library is given to know of the end of a machine is what is billed."""
    (seen,) = provider.describe([name])
    assert machine.ended_at is not None
    assert seen.billed_to_ms == round(machine.ended_at.timestamp() * 1000)


@pytest.mark.parametrize("how", ["deleted", "taken", "approved", "shut down"])
def test_azure(arm_clients: tuple[LoopbackServer, LoopbackServer, AzureConnections], how: str) -> None:
    account = arm_account.opened(*arm_clients, "tw-1")
    account.arm.present = Present(Slow(arm_account.NOW_MS + 1000 * LIFE_S))
    provider = account.connect()
    (name,) = provider.launch(arm_account.spec())
    (vm,) = account.arm.every()
    account.clock.advance(2 * LIFE_S)
    if how == "deleted":
        provider.terminate(name)
    elif how == "shut down":
        assert isinstance(vm.machine, Still)
        vm.machine.off = True
        provider.describe([name])
    else:
        account.arm.ending_s = LIFE_S
        account.arm.announce(vm.name)
        if how == "approved":
            account.arm.approved(vm.name)
        while vm.ended_at is None:
            provider.describe([name])
        provider.terminate(name)
        account.arm.ending_s = 0
    agree(provider, name, vm)


@pytest.mark.parametrize("how", ["deleted", "taken", "shut down"])
def test_compute_engine(project: gce_project.Project, how: str) -> None:
    project.gce.present = Present(Slow(gce_project.NOW_MS + 1000 * LIFE_S))
    provider = project.connect()
    (name,) = provider.launch(gce_project.spec())
    (vm,) = project.gce.vms
    project.clock.advance(2 * LIFE_S)
    if how == "deleted":
        provider.terminate(name)
    elif how == "taken":
        project.gce.take(vm.row.name)
    else:
        assert isinstance(vm.machine, Still)
        vm.machine.off = True
        provider.describe([name])
        provider.terminate(name)
    agree(provider, name, vm)


@pytest.mark.parametrize("how", ["deleted", "taken", "shut down"])
def test_ec2(account: ec2_account.Account, how: str) -> None:
    account.ec2.present = Present(Slow(ec2_account.NOW_MS + 1000 * LIFE_S))
    provider = account.connect()
    (name,) = provider.launch(ec2_account.spec())
    (machine,) = account.ec2.instances.values()
    account.clock.advance(2 * LIFE_S)
    if how == "deleted":
        provider.terminate(name)
    elif how == "taken":
        account.ec2.take(machine.id)
    else:
        assert isinstance(machine.machine, Still)
        machine.machine.off = True
        provider.describe([name])
    agree(provider, name, machine)
