"""The provider `static` reports how many of the machines that somebody owns are in use, for each offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.market import Listing, rooms
from providers.base import Covered, LimitsByQuota, Quota
from providers.clock import VirtualClock
from providers.errors import UnavailableError
from providers.static import StaticProvider
from providers.static.hosts import Host, read_hosts
from providers.static.ssh import Ssh

DESK = {"address": "desk.lan", "vcpus": 16, "memory_gb": 64}
HOSTS = read_hosts(
    {
        "desk1": {**DESK, "region": "lab"},
        "desk2": {**DESK, "region": "lab"},
        "desk3": {**DESK, "region": "lab", "zone": "attic"},
        "server": {**DESK, "vcpus": 64, "memory_gb": 256, "slots": 4, "region": "lab"},
    }
)
LOOK = {
    **{"python": "3.11", "architecture": "x86_64", "bash": True, "free_bytes": 10**12, "wall_ms": 0, "gpus": None},
    **{"known": []},
}


class Hosts(Ssh):
    """So many slots of each are free; those without a number do not answer."""

    def __init__(self, free: Mapping[str, int]) -> None:
        self.free = free

    def ask(self, host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if host.name not in self.free:
            raise UnavailableError(f"{host.name} does not answer")
        return {**LOOK, "free_slots": self.free[host.name]}


def reported(folder: Path, **free: int) -> tuple[StaticProvider, dict[str, Quota]]:
    provider = StaticProvider(HOSTS, folder, VirtualClock(), Hosts(free))
    return provider, {each.scope: each for each in provider.quotas()}


def test_equal_hosts_are_counted_together_and_zones_apart(tmp_path: Path) -> None:
    provider, found = reported(tmp_path, desk1=0, desk2=1, desk3=1, server=3)
    assert isinstance(provider, LimitsByQuota)
    assert provider.quotas_limit_plans
    assert {scope: (each.limit, each.used) for scope, each in found.items()} == {
        "desk1, desk2, server": (6, 2),
        "desk3": (1, 0),
    }
    assert all(each.owned and not each.remedy for each in found.values())
    assert found["desk3"].covers == Covered("machines", ("lab",), ("cpu.16",), zones=("attic",))


def test_each_offer_has_the_room_of_its_own_hosts(tmp_path: Path) -> None:
    provider, found = reported(tmp_path, desk1=0, desk2=0, desk3=1, server=0)
    listing = Listing.of(provider.offers())
    known = rooms(listing, {"static": list(found.values())})
    assert {listing.ids[row]: [each.left for each in of_row] for row, of_row in known.items()} == {
        "static/lab/lab/cpu.16/on_demand": [0],
        "static/lab/attic/cpu.16/on_demand": [1],
    }


def test_the_machines_of_a_host_that_does_not_answer_cannot_be_used_and_the_plan_says_why(tmp_path: Path) -> None:
    _, found = reported(tmp_path, desk1=1, desk3=1, server=4)
    together = found["desk1, desk2, server"]
    assert (together.limit, together.used) == (6, 1)
    assert together.remedy == "no answer from desk2; run: tradewind doctor"


def test_a_host_cannot_claim_more_free_machines_than_it_has(tmp_path: Path) -> None:
    _, found = reported(tmp_path, desk1=-3, desk2=99, desk3=0, server=4)
    assert found["desk1, desk2, server"].used == 1
