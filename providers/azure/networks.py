"""The networks of machines on Azure: a resource group, and in each region a virtual network with its security group.

Every part is found by its tag INSTALL, which the PUT that creates it sets. Names are derived from the installation and
the region, so a repeated PUT creates nothing twice. The network security group has only Azure's default rules, which
let machines of the network reach each other and let nothing in from elsewhere. The resource group is removed only if
Tradewind made it and nothing else is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from providers.azure import rows
from providers.azure.calls import INSTALL
from providers.azure.resources import Resources
from providers.azure.session import Connections
from providers.azure.settings import Settings
from providers.clock import Clock
from providers.errors import SetupError
from providers.network import Network, NetworkPart

FRESH_S = 3600.0
BLOCK, SUBNET = "10.83.0.0/16", "10.83.0.0/20"
_GROUPS_VERSION, _NETWORK_VERSION = "2021-04-01", "2024-05-01"
_FIREWALLS, _NETWORKS = "networkSecurityGroups", "virtualNetworks"
_KINDS = {_NETWORKS: "network", _FIREWALLS: "firewall"}
"""In the order in which they can be removed."""


@dataclass(frozen=True, slots=True)
class Place:
    """The ids of the resources that a machine is placed in."""

    subnet: str
    firewall: str


class Networks:
    """Methods raise azure.core's exceptions and ProviderErrors."""

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._resources = Resources(connections, clock)
        self._known: dict[tuple[str, str], float] = {}

    def place(self, install: str, region: str) -> Place:
        """The resources that machines are placed in; whether they exist is looked up once an hour. Raises
        SetupError."""
        now_s = self._clock.monotonic_s()
        seen_s = self._known.get((install, region))
        if seen_s is None or now_s - seen_s > FRESH_S:
            if missing := [what for what, _ in self._steps(install, region)]:
                raise SetupError(
                    f"this installation has no network in {region}; missing: {', '.join(missing)}",
                    hint="create it: tradewind up --cloud azure",
                    scope="region",
                )
            self._known[install, region] = now_s
        return Place(f"{self._id(_NETWORKS, install, region)}/subnets/machines", self._id(_FIREWALLS, install, region))

    def forget(self, install: str, region: str) -> None:
        """Look the network up again at the next launch, because Azure reports that a part of it is gone."""
        self._known.pop((install, region), None)

    def regions(self, install: str) -> list[str]:
        """The regions that have resources of the installation."""
        found = [rows.region_of(row) for kind in _KINDS for row in self._listed(kind, install)]
        return list(dict.fromkeys(found))

    def network(self, install: str, region: str, *, wanted: bool) -> Network:
        """What exists and what is missing."""
        parts = [
            NetworkPart(kind, str(row["id"]))
            for name, kind in _KINDS.items()
            for row in self._listed(name, install)
            if rows.region_of(row) == region
        ]
        missing = tuple(what for what, _ in self._steps(install, region)) if wanted else ()
        return Network(rows.PROVIDER, region, tuple(parts), missing, wanted)

    def set_up(self, install: str, region: str, progress: Callable[[str], None]) -> None:
        """Create what is missing, in an order in which each part can be found again."""
        for what, make in self._steps(install, region):
            make()
            progress(f"{region}: {what} was made")

    def tear_down(self, install: str, region: str, progress: Callable[[str], None]) -> None:
        """Remove all parts in a region; parts that others depend on come last."""
        self.forget(install, region)
        for name, kind in _KINDS.items():
            for row in self._listed(name, install):
                if rows.region_of(row) == region:
                    self._resources.remove(str(row["id"]), _NETWORK_VERSION, f"the {kind} of {region}")
                    progress(f"{region}: {kind} {row['name']} was removed")

    def remove_group(self, install: str, progress: Callable[[str], None]) -> None:
        """Remove the resource group if the installation made it and nothing is left in it."""
        group = self._resources.got(self._settings.group, _GROUPS_VERSION)
        if group is None or rows.tags_of(group).get(INSTALL) != install:
            return
        if not self._resources.listed(f"{self._settings.group}/resources", _GROUPS_VERSION):
            self._resources.remove(self._settings.group, _GROUPS_VERSION, "the resource group")
            progress(f"resource group {self._settings.resource_group} was removed")

    # --- for the methods above ---

    def _steps(self, install: str, region: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is missing or wrong, and the call that creates or corrects it. Each step may rely on earlier ones."""
        group = self._settings.group
        tags = {INSTALL: install}
        firewall, network = self._id(_FIREWALLS, install, region), self._id(_NETWORKS, install, region)
        guard = {"id": firewall}
        inside = {"name": "machines", "properties": {"addressPrefix": SUBNET, "networkSecurityGroup": guard}}
        around = {"addressSpace": {"addressPrefixes": [BLOCK]}, "subnets": [inside]}

        def put(path: str, version: str, body: dict[str, Any]) -> Callable[[], None]:
            return lambda: self._resources.put(path, version, {"location": region, "tags": tags, **body})

        if self._resources.got(group, _GROUPS_VERSION) is None:
            yield "resource group", put(group, _GROUPS_VERSION, {})
        found = self._resources.got(firewall, _NETWORK_VERSION)
        if found is None:
            yield "firewall", put(firewall, _NETWORK_VERSION, {"properties": {"securityRules": []}})
        elif rules := found["properties"].get("securityRules"):
            names = ", ".join(str(rule["name"]) for rule in rules)
            what = f"a firewall without the rules {names}"
            yield what, put(firewall, _NETWORK_VERSION, {"properties": {"securityRules": []}})
        found = self._resources.got(network, _NETWORK_VERSION)
        if found is None or not _guarded(found, firewall):
            yield (
                "network" if found is None else "a network behind the firewall",
                put(network, _NETWORK_VERSION, {"properties": around}),
            )

    def _id(self, kind: str, install: str, region: str) -> str:
        return f"{self._settings.group}/providers/Microsoft.Network/{kind}/tradewind-{install}-{region}"

    def _listed(self, kind: str, install: str) -> list[Any]:
        path = f"{self._settings.group}/providers/Microsoft.Network/{kind}"
        found = [
            row for row in self._resources.listed(path, _NETWORK_VERSION) if rows.tags_of(row).get(INSTALL) == install
        ]
        return sorted(found, key=lambda row: str(row["id"]))


def _guarded(network: Any, firewall: str) -> bool:
    """Whether the machines' subnet is there, behind the firewall."""
    for subnet in network["properties"].get("subnets", ()):
        guard = subnet["properties"].get("networkSecurityGroup") or {}
        if subnet["name"] == "machines":
            return str(guard.get("id", "")).lower() == firewall.lower()
    return False
