"""The calls that this package makes, and the role definition that allows these and nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection

from providers.policy import Call, PolicyDocument, Store, Use, permissions

CALLS = (
    Call("Microsoft.Compute/skus/read", Use.PRICES),
    Call("Microsoft.ResourceGraph/resources/read", Use.PRICES),
)
"""Both are included in the role Reader. Retail prices need no account."""


def policy(uses: Collection[Use], _store: Store | None = None) -> PolicyDocument:
    """The role for these uses, as `az role definition create` reads it."""
    role = {
        "Name": "Tradewind",
        "IsCustom": True,
        "Description": f"What Tradewind does in a subscription ({', '.join(each for each in Use if each in uses)})",
        "Actions": permissions(CALLS, *uses),
        "NotActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
    }
    return PolicyDocument(json.dumps(role, indent=2), "json", "az role definition create --role-definition @role.json")
