"""Resource groups, virtual networks and network security groups of the loopback Azure Resource Manager."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.clouds.azure import error
from tests.clouds.server import Response

_NETWORK = re.compile(r"(.*)/providers/microsoft\.network/(virtualnetworks|networksecuritygroups)(?:/([^/]+))?", re.I)

Row = dict[str, Any]


class Refused(Exception):
    """An error as ARM answers it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.response = error(code, message, status)


class Networks:
    """`groups` by name; `resources` by lower-case id. `cards` are the network interfaces of machines, as they were
    asked for; `others` the names of everything else in the group; `begun` the headers of a new long operation."""

    def __init__(
        self,
        cards: Callable[[], Iterator[Row]],
        others: Callable[[], list[str]],
        begun: Callable[[], Mapping[str, str]],
    ) -> None:
        self.groups: dict[str, Row] = {}
        self.resources: dict[str, Row] = {}
        self._cards, self._others, self._begun = cards, others, begun

    def has(self, resource: str) -> bool:
        """Whether there is a resource with this id, such as a subnet."""
        whole, _, part = resource.partition("/subnets/")
        row = self.resources.get(whole.lower())
        return row is not None and (not part or part in [each["name"] for each in row["properties"]["subnets"]])

    def __call__(self, method: str, path: str, body: bytes) -> Response | None:
        """The answer; None for what is not served here."""
        if re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/[^/]+", path, re.I):
            return self._group(method, path.rpartition("/")[2], body)
        if path.lower().endswith("/resources"):
            found = [row["id"] for row in self.resources.values()] + self._others()
            return _json({"value": [{"id": each} for each in found]})
        if (named := _NETWORK.fullmatch(path)) is None:
            return None
        if named[3] is None:
            kind = f"microsoft.network/{named[2]}".lower()
            return _json({"value": [row for row in self.resources.values() if row["type"].lower() == kind]})
        return self._resource(method, path, named[2], named[3], body)

    def _group(self, method: str, name: str, body: bytes) -> Response:
        if method == "PUT":
            new = name not in self.groups
            self.groups[name] = {"name": name, **json.loads(body)}
            return _json(self.groups[name], 201 if new else 200)
        if name not in self.groups:
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        if method == "DELETE":
            assert not self.resources
            del self.groups[name]
            return Response(202, headers=self._begun())
        return _json(self.groups[name])

    def _resource(self, method: str, path: str, kind: str, name: str, body: bytes) -> Response:
        key = path.lower()
        if method == "PUT":
            made = json.loads(body)
            for subnet in made["properties"].get("subnets", []):
                guard = subnet["properties"]["networkSecurityGroup"]["id"]
                if not self.has(guard):
                    raise Refused(400, "InvalidResourceReference", f"Resource {guard} was not found.")
            new = key not in self.resources
            self.resources[key] = {"id": path, "name": name, "type": f"Microsoft.Network/{kind}", **made}
            return _json(self.resources[key], 201 if new else 200, self._begun())
        if key not in self.resources:
            if method == "DELETE":
                return Response(204)
            raise Refused(404, "ResourceNotFound", f"The Resource '{kind}/{name}' was not found.")
        if method == "DELETE":
            self._refuse_used(key, kind.lower())
            del self.resources[key]
            return Response(202, headers=self._begun())
        return _json(self.resources[key])

    def _refuse_used(self, key: str, kind: str) -> None:
        rest = [json.dumps(row).lower() for other, row in self.resources.items() if other != key]
        if any(key in each for each in [*rest, *(json.dumps(card).lower() for card in self._cards())]):
            code = {
                "virtualnetworks": "InUseSubnetCannotBeDeleted",
                "networksecuritygroups": "InUseNetworkSecurityGroupCannotBeDeleted",
            }[kind]
            raise Refused(400, code, f"{key} is in use and cannot be deleted.")


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, json.dumps(body).encode(), headers=headers or {})
