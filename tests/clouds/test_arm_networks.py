"""The networks of machines on Azure, through azure-mgmt-compute's pipeline: made, corrected, removed to the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from providers.azure.session import Connections
from providers.errors import UnavailableError
from tests.clouds.arm import GROUP
from tests.clouds.arm_account import SPOT, Account, opened, spec
from tests.clouds.azure import error
from tests.clouds.server import Fault, LoopbackServer, Request

CHANGES = ("PUT", "DELETE")


def quiet(_: str) -> None:
    return None


@pytest.fixture
def bare(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> Account:
    """A subscription without anything."""
    return opened(*arm_clients, None)


def left(account: Account) -> list[str]:
    return [*account.arm.networks.groups, *account.arm.networks.resources, *account.arm.keys]


def changes(account: Account) -> list[Request]:
    return [each for each in account.server.requests if each.method in CHANGES]


def test_networks_are_made_once_and_removed_to_the_last_part(bare: Account) -> None:
    said: list[str] = []
    bare.connect().set_up("tw-1", said.append)
    found = bare.connect().networks("tw-1")
    assert [(each.region, each.ready) for each in found] == [("eastus", True), ("westus2", True)]
    assert [part.kind for part in found[0].parts] == ["network", "firewall"]
    assert said[:3] == [f"eastus: {what} was made" for what in ("resource group", "firewall", "network")]
    before = len(changes(bare))
    bare.connect().set_up("tw-1", said.append)
    assert len(changes(bare)) == before
    provider = bare.connect()
    provider.terminate(*provider.launch(spec()))
    provider.tear_down("tw-1", said.append)
    assert left(bare) == []
    provider.tear_down("tw-1", said.append)
    assert not any(each.parts for each in provider.networks("tw-1"))


def test_nothing_is_let_in_and_a_rule_that_does_is_removed(bare: Account) -> None:
    provider = bare.connect(regions=("eastus",))
    provider.set_up("tw-1", quiet)
    (firewall,) = (each for key, each in bare.arm.networks.resources.items() if "securitygroups" in key)
    assert firewall["properties"] == {"securityRules": []}
    firewall["properties"]["securityRules"] = [{"name": "ssh", "properties": {"access": "Allow"}}]
    (network,) = provider.networks("tw-1")
    assert network.missing == ("a firewall without the rules ssh",)
    provider.set_up("tw-1", quiet)
    assert provider.networks("tw-1")[0].ready


def test_a_subnet_whose_guard_was_removed_gets_it_back(bare: Account) -> None:
    provider = bare.connect(regions=("eastus",))
    provider.set_up("tw-1", quiet)
    (network,) = (each for key, each in bare.arm.networks.resources.items() if "virtualnetworks" in key)
    del network["properties"]["subnets"][0]["properties"]["networkSecurityGroup"]
    assert provider.networks("tw-1")[0].missing == ("a network behind the firewall",)
    provider.set_up("tw-1", quiet)
    assert provider.networks("tw-1")[0].ready


@pytest.mark.parametrize(
    "how", [{"lost": True}, {"answer": error("InternalServerError", "no", 500)}], ids=["lost", "refused"]
)
@pytest.mark.parametrize(("do", "steps"), [("set_up", 3), ("tear_down", 3)])
def test_setting_up_and_taking_down_go_on_after_a_death_at_any_call(
    bare: Account, do: str, steps: int, how: dict[str, Any]
) -> None:
    """Each call fails once, with and without its effect."""
    provider = bare.connect(regions=("eastus",))
    for number in range(steps):
        provider.tear_down("tw-1", quiet)
        if do == "tear_down":
            provider.set_up("tw-1", quiet)
        passed = iter(range(number))

        def due(request: Request, passed: Iterator[int] = passed) -> bool:
            return request.method in CHANGES and next(passed, None) is None

        bare.server.faults = [Fault(due, 1, **how)]
        with pytest.raises(UnavailableError):
            getattr(provider, do)("tw-1", quiet)
        getattr(bare.connect(regions=("eastus",)), do)("tw-1", quiet)
        assert provider.networks("tw-1")[0].ready if do == "set_up" else left(bare) == []


def test_a_network_with_a_machine_in_it_stays_and_so_does_what_it_needs(bare: Account) -> None:
    provider = bare.connect(regions=("eastus",))
    provider.set_up("tw-1", quiet)
    (name,) = provider.launch(spec())
    with pytest.raises(UnavailableError, match="is still used"):
        provider.tear_down("tw-1", quiet)
    assert provider.networks("tw-1")[0].ready
    provider.terminate(name)
    provider.tear_down("tw-1", quiet)
    assert left(bare) == []


def test_what_others_have_in_the_resource_group_stays_with_it(bare: Account) -> None:
    provider = bare.connect(regions=("eastus",))
    provider.set_up("tw-1", quiet)
    bare.connect(regions=("eastus",)).set_up("tw-2", quiet)
    provider.tear_down("tw-1", quiet)
    assert list(bare.arm.networks.groups) == [GROUP]
    assert all("tw-2" in each for each in bare.arm.networks.resources)
    bare.connect().tear_down("tw-2", quiet)
    assert list(bare.arm.networks.groups) == [GROUP]  # tw-1 made it


def test_a_region_that_is_no_longer_configured_is_listed_and_removed(bare: Account) -> None:
    bare.connect().set_up("tw-1", quiet)
    provider = bare.connect(regions=("eastus",))
    assert [(each.region, each.wanted) for each in provider.networks("tw-1")] == [("eastus", True), ("westus2", False)]
    provider.tear_down("tw-1", quiet)
    assert left(bare) == []


def test_launches_of_one_installation_use_its_own_network(bare: Account) -> None:
    bare.connect().set_up("tw-1", quiet)
    bare.connect().launch(spec(SPOT))
    body = bare.asked("PUT", "/virtualMachines/")[0].body
    assert b"/virtualNetworks/tradewind-tw-1-eastus/subnets/machines" in body
    assert b"/networkSecurityGroups/tradewind-tw-1-eastus" in body
