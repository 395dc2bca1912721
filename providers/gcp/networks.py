"""The network of machines on GCP: one for all regions, with a subnet in each region and a firewall that lets in only
members.

Networks and firewall rules have no labels, so both are found by their names, which are derived from the installation.
GCP creates the subnets by itself. Connections that no rule allows are blocked; the only rule allows connections between
machines that carry the network tag MEMBER, for jobs on several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from providers.clock import Clock
from providers.errors import ConflictError, NotFoundError, SetupError, UnavailableError
from providers.gcp.names import PROVIDER, network_name
from providers.gcp.session import Connections, converted, failure, is_done
from providers.network import Network, NetworkPart

FRESH_S = 3600.0
WATCHED_S = 15.0
MEMBER = "tradewind"
_ALL = "all"


class Networks:
    """Methods raise ProviderError."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._known: dict[tuple[str, str], float] = {}

    def place(self, install: str, region: str) -> str:
        """The network of machines in a region; looked up once an hour. Raises SetupError."""
        now_s = self._clock.monotonic_s()
        if now_s - self._known.get((install, region), -FRESH_S) >= FRESH_S:
            missing = self._found(install).missing(region)
            if missing:
                self.forget(install)
                raise SetupError(
                    f"this installation has no {' and no '.join(missing)} on GCP in {region}",
                    hint="create it: tradewind up --cloud gcp",
                    scope="region",
                )
            self._known[install, region] = now_s
        return f"global/networks/{network_name(install)}"

    def forget(self, install: str) -> None:
        """Look it up again at the next launch."""
        self._known = {key: at_s for key, at_s in self._known.items() if key[0] != install}

    def networks(self, install: str, regions: Sequence[str]) -> Sequence[Network]:
        """What exists in each of these regions."""
        found = self._found(install)
        return [Network(PROVIDER, each, found.parts(each), found.missing(each)) for each in regions]

    def set_up(self, install: str, regions: Sequence[str], progress: Callable[[str], None]) -> None:
        """Create what is missing. Raises UnavailableError while GCP creates it."""
        name = network_name(install)
        about = f"Machines of Tradewind, installation {install}: no inbound connections from outside"
        found = self._found(install)
        if found.network is None:
            asked = {"name": name, "description": about, "auto_create_subnetworks": True}
            self._make("NetworksClient", {"network_resource": asked}, f"network {name}", progress)
        if found.rule is None:
            rule = {
                "name": name,
                "description": about,
                "network": f"global/networks/{name}",
                "direction": "INGRESS",
                "allowed": [{"I_p_protocol": _ALL}],
                "source_tags": [MEMBER],
                "target_tags": [MEMBER],
            }
            self._make("FirewallsClient", {"firewall_resource": rule}, f"firewall {name}", progress)
        for each in found.strange:
            self._remove("FirewallsClient", {"firewall": each}, f"firewall rule {each}", progress)
        found = self._found(install)
        if waiting := [each for each in regions if found.missing(each)]:
            raise UnavailableError(f"GCP is still creating the network in {', '.join(waiting)}")

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """Remove all parts: the firewall rules, then the network with its subnets."""
        found = self._found(install)
        self.forget(install)
        for each in found.rules:
            self._remove("FirewallsClient", {"firewall": each.name}, f"firewall rule {each.name}", progress)
        if found.network is not None:
            name = network_name(install)
            self._remove("NetworksClient", {"network": name}, f"network {name}", progress)

    def _found(self, install: str) -> _Found:
        name = network_name(install)
        try:
            network = self._connections.ask("NetworksClient", "get", network=name)
        except NotFoundError:
            network = None
        with converted():
            rules = self._connections.list("FirewallsClient", filter=f'network eq ".*/networks/{name}"')
        return _Found(name, network, sorted(rules, key=lambda rule: str(rule.name)))

    def _make(self, client: str, fields: dict[str, Any], what: str, progress: Callable[[str], None]) -> None:
        try:
            operation = self._connections.once(client, "insert_unary", **fields)
        except ConflictError:  # an earlier call made it and its answer was lost
            return
        self._await(operation, f"{what} is being created")
        progress(f"{what} was made")

    def _remove(self, client: str, fields: dict[str, Any], what: str, progress: Callable[[str], None]) -> None:
        try:
            operation = self._connections.once(client, "delete_unary", **fields)
        except NotFoundError:
            return
        self._await(operation, f"{what} is being removed")
        progress(f"{what} was removed")

    def _await(self, operation: Any, meanwhile: str) -> None:
        if not is_done(operation):
            operation = self._connections.once("GlobalOperationsClient", "wait", WATCHED_S, operation=operation.name)
        if (refused := failure(operation)) is not None and not isinstance(refused, ConflictError | NotFoundError):
            raise refused
        if not is_done(operation):
            raise UnavailableError(meanwhile)


@dataclass(frozen=True)
class _Found:
    """What exists: the network's row, and the rows of all its firewall rules."""

    name: str
    network: Any
    rules: Sequence[Any]

    @property
    def rule(self) -> Any:
        """The rule that lets in only members."""
        return next((rule for rule in self.rules if rule.name == self.name and _admits_members(rule)), None)

    @property
    def strange(self) -> list[str]:
        """The names of other rules that allow inbound connections."""
        return [rule.name for rule in self.rules if rule.allowed and rule.direction == "INGRESS" and rule != self.rule]

    def subnet(self, region: str) -> str | None:
        """The URL of the subnet of a region, as GCP gives it."""
        links = [] if self.network is None else list(self.network.subnetworks)
        return next((link for link in links if f"/regions/{region}/" in link), None)

    def parts(self, region: str) -> tuple[NetworkPart, ...]:
        found = [NetworkPart("firewall", rule.name) for rule in self.rules]
        if (subnet := self.subnet(region)) is not None:
            found.append(NetworkPart("subnet", subnet.partition("/regions/")[2]))
        return (*found, *([] if self.network is None else [NetworkPart("network", self.name)]))

    def missing(self, region: str) -> tuple[str, ...]:
        return (
            *(["network"] if self.network is None else []),
            *(["firewall"] if self.rule is None else []),
            *(["subnet"] if self.subnet(region) is None else []),
            *(f"removal of the firewall rule {each}" for each in self.strange),
        )


def _admits_members(rule: Any) -> bool:
    """Whether a rule lets in members and no others."""
    return (
        rule.direction == "INGRESS"
        and not rule.disabled
        and list(rule.source_tags) == list(rule.target_tags) == [MEMBER]
        and not rule.source_ranges
        and not rule.source_service_accounts
        and [each.I_p_protocol for each in rule.allowed] == [_ALL]
    )
