"""An account of a loopback Azure, and its machines."""

from __future__ import annotations

import pytest

from providers.azure.session import Connections
from tests.clouds.arm import Vm
from tests.clouds.arm_account import GPU, Account, opened
from tests.clouds.server import LoopbackServer
from tests.clouds.still import Still

HOUR_S = 3600
HERE = "eastus", GPU, True


@pytest.fixture
def account(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> Account:
    return opened(*arm_clients, "tw-1")


def the_machine(account: Account) -> Vm:
    (vm,) = account.arm.every()
    return vm


def still(vm: Vm) -> Still:
    assert isinstance(vm.machine, Still)
    return vm.machine
