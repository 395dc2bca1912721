"""Roles in front of the loopback Azure: which actions a request needs, and whether the account's role allows them.

The action of a request follows from its path and method (learn.microsoft.com/azure/role-based-access-control/
role-definitions). Linked actions, of resources that a request names or makes inside others, are those that the table
of permissions lists (learn.microsoft.com/azure/role-based-access-control/permissions/compute, .../networking); that a
machine's request needs those of its disk, interface and address as well is an assumption on the safe side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.clouds.arm import Arm
from tests.clouds.azure import error
from tests.clouds.server import Cloud, Request, Response

_VERBS = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete", "POST": "read"}  # POST: a query
_RESOURCES = "Microsoft.Resources/subscriptions/resourceGroups"
_NETWORK, _COMPUTE = "Microsoft.Network", "Microsoft.Compute"
_LINKED: dict[str, tuple[str, ...]] = {
    f"{_COMPUTE}/virtualMachines/write": (
        *(f"{_NETWORK}/networkInterfaces/{what}" for what in ("read", "write", "join/action")),
        *(f"{_NETWORK}/publicIPAddresses/{what}" for what in ("read", "write", "join/action")),
        *(f"{_NETWORK}/virtualNetworks/subnets/join/action", f"{_NETWORK}/networkSecurityGroups/join/action"),
        *(f"{_COMPUTE}/disks/{what}" for what in ("read", "write")),
    ),
    f"{_COMPUTE}/virtualMachines/delete": (
        f"{_NETWORK}/networkInterfaces/delete",
        f"{_NETWORK}/publicIPAddresses/delete",
        f"{_COMPUTE}/disks/delete",
    ),
    f"{_NETWORK}/virtualNetworks/write": (
        f"{_NETWORK}/virtualNetworks/subnets/write",
        f"{_NETWORK}/networkSecurityGroups/join/action",
    ),
}
"""Action -> those that it needs besides."""


@dataclass
class Enforced:
    """A cloud that allows what `arm.granted` does. `demanded` are the actions that its requests needed."""

    inner: Cloud
    arm: Arm
    demanded: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Response:
        if request.query.get("resource") == "filesystem":  # of the store itself, whose roles are others
            return self.inner(request)
        for action in demands(request):
            self.demanded.append(action)
            if not any(fnmatchcase(action.lower(), each.lower()) for each in self.arm.granted):
                text = f"The client 'x' with object id 'y' does not have authorization to perform action '{action}' "
                scope = f"over scope '{request.path}' or the scope is invalid. If access was recently granted, please "
                return error("AuthorizationFailed", f"{text}{scope}refresh your credentials.", 403)
        return self.inner(request)


def demands(request: Request) -> Iterator[str]:
    """The actions that a request needs, its own first: those of .../virtualMachines/x are of the type virtualMachines,
    those of .../locations/x/usages of locations/usages."""
    _, inside, named = request.path.rpartition("/providers/")
    if inside:
        namespace, *words = named.split("/")
        kind = "/".join([namespace, *words[::2]])
    else:
        kind = f"{_RESOURCES}/resources" if request.path.lower().endswith("/resources") else _RESOURCES
    action = f"{kind}/{_VERBS[request.method]}"
    yield action
    for of, others in _LINKED.items():
        if of.lower() == action.lower():
            yield from others
