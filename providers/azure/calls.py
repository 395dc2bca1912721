"""The calls that this package makes, and the role definition that allows only these."""

from __future__ import annotations

import json
from collections.abc import Collection

from providers.policy import Call, PolicyDocument, Store, Use, permissions

INSTALL = "tradewind-install"
"""The tag that everything is created with."""

CALLS = (
    Call("Microsoft.Compute/skus/read", Use.PRICES),
    Call("Microsoft.ResourceGraph/resources/read", Use.PRICES),
    *(
        Call(name, Use.MACHINES)
        for name in (
            "Microsoft.Compute/skus/read",
            *(f"Microsoft.Compute/virtualMachines/{what}" for what in ("read", "write", "delete")),
            *(f"Microsoft.Compute/sshPublicKeys/{what}" for what in ("read", "write", "delete")),
            *(f"Microsoft.Compute/disks/{what}" for what in ("read", "write", "delete")),
            *("Microsoft.Compute/locations/usages/read", "Microsoft.Compute/locations/operations/read"),
            "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
            "Microsoft.Resources/tags/write",
            *(f"Microsoft.Network/networkInterfaces/{what}" for what in ("read", "write", "delete", "join/action")),
            *(f"Microsoft.Network/publicIPAddresses/{what}" for what in ("read", "write", "delete", "join/action")),
            *("Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/join/action"),
            "Microsoft.Network/networkSecurityGroups/read",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
            "Microsoft.Authorization/permissions/read",
        )
    ),
    *(
        Call(name, Use.NETWORKS)
        for name in (
            *(f"Microsoft.Resources/subscriptions/resourceGroups/{what}" for what in ("read", "write", "delete")),
            "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
            *(f"Microsoft.Network/networkSecurityGroups/{what}" for what in ("read", "write", "delete", "join/action")),
            *(f"Microsoft.Network/virtualNetworks/{what}" for what in ("read", "write", "delete")),
            *("Microsoft.Network/virtualNetworks/subnets/write", "Microsoft.Network/locations/operations/read"),
            *("Microsoft.Compute/sshPublicKeys/read", "Microsoft.Compute/sshPublicKeys/delete"),
        )
    ),
    *(
        Call(f"Microsoft.Storage/storageAccounts/{what}", Use.BUCKET)
        for what in (
            *("read", "write", "delete", "blobServices/read", "blobServices/write"),
            *(f"blobServices/containers/{what}" for what in ("read", "write", "delete")),
            *("fileServices/shares/read", "queueServices/queues/read", "tableServices/tables/read"),
            "managementPolicies/read",
        )
    ),
)
"""The calls for prices are included in the role Reader. Retail prices need no account. If one request creates a machine
with its interface, address and disk, it is not documented which of their permissions it needs: to be checked with a
real account."""


def policy(uses: Collection[Use], store: Store | None = None) -> PolicyDocument:
    """The role for these uses, as `az role definition create` reads it."""
    if store is None:
        uses = [each for each in uses if each is not Use.BUCKET]
    role = {
        "Name": "Tradewind",
        "IsCustom": True,
        "Description": "The actions of Tradewind in a subscription "
        f"({', '.join(each for each in Use if each in uses)})",
        "Actions": permissions(CALLS, *uses),
        "NotActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
    }
    return PolicyDocument(json.dumps(role, indent=2), "json", "az role definition create --role-definition @role.json")
