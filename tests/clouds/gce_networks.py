"""The networks of the loopback Compute Engine: networks in automatic mode, and the rules of their firewalls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from google.cloud import compute_v1 as api

from tests.clouds.server import Request

Refuse = Callable[[int, str, str], Exception]


class GceNetworks:
    """`takes_s`: how long it takes to make or to remove something. `used` returns the networks that have machines."""

    def __init__(self, project: str, regions: Callable[[], Sequence[str]], used: Callable[[], set[str]]) -> None:
        self._project, self._regions, self._used = project, regions, used
        self.takes_s = 0.0
        self.networks: dict[str, Any] = {}
        self.firewalls: dict[str, Any] = {}

    def add(self, name: str) -> None:
        """A network as `up` makes it."""
        subnets = [f"projects/{self._project}/regions/{each}/subnetworks/{name}" for each in self._regions()]
        self.networks[name] = api.Network(name=name, auto_create_subnetworks=True, subnetworks=subnets)
        self.firewalls[name] = api.Firewall(
            name=name,
            network=f"projects/{self._project}/global/networks/{name}",
            direction="INGRESS",
            allowed=[{"I_p_protocol": "all"}],
            source_tags=["tradewind"],
            target_tags=["tradewind"],
        )

    @property
    def parts(self) -> list[str]:
        return [*self.networks, *self.firewalls]

    def answer(self, words: list[str], request: Request, now: datetime, refuse: Refuse) -> tuple[str, Any, datetime]:
        """(permission, answer or the type of an operation, when that is done) of a request below `global/`."""
        done = now + timedelta(seconds=self.takes_s)
        match (request.method, words):
            case ("GET", ["networks", name]):
                return "networks.get", self._existing(self.networks, name, refuse), now
            case ("POST", ["networks"]):
                network = api.Network.from_json(request.body)
                self._new(self.networks, network.name, refuse)
                self.add(network.name)
                del self.firewalls[network.name]
                return "networks.create", "insert", done
            case ("DELETE", ["networks", name]):
                self._existing(self.networks, name, refuse)
                users = [rule.name for rule in self.firewalls.values() if rule.network.endswith(f"/{name}")]
                if name in self._used() or users:
                    text = f"The network resource '{name}' is already being used by '{(users or ['a machine'])[0]}'"
                    raise refuse(400, "resourceInUseByAnotherResource", text)
                del self.networks[name]
                return "networks.delete", "delete", done
            case ("GET", ["firewalls"]):
                found = re.fullmatch(r'network eq "(.*)"', request.query.get("filter", ""))
                assert found is not None
                rows = [rule for rule in self.firewalls.values() if re.fullmatch(found[1], rule.network)]
                return "firewalls.list", api.FirewallList(items=rows), now
            case ("POST", ["firewalls"]):
                rule = api.Firewall.from_json(request.body)
                self._new(self.firewalls, rule.name, refuse)
                name = rule.network.rpartition("/")[2]
                self._existing(self.networks, name, refuse)
                rule.network = f"projects/{self._project}/global/networks/{name}"
                self.firewalls[rule.name] = rule
                return "firewalls.create", "insert", done
            case ("DELETE", ["firewalls", name]):
                self._existing(self.firewalls, name, refuse)
                del self.firewalls[name]
                return "firewalls.delete", "delete", done
        raise refuse(404, "notFound", f"{request.method} {request.path} is not served here")

    def _existing(self, rows: dict[str, Any], name: str, refuse: Refuse) -> Any:
        if name not in rows:
            raise refuse(404, "notFound", f"The resource 'projects/{self._project}/global/.../{name}' was not found")
        return rows[name]

    def _new(self, rows: dict[str, Any], name: str, refuse: Refuse) -> None:
        if name in rows:
            raise refuse(409, "alreadyExists", f"The resource '{name}' already exists")
