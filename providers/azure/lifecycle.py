"""Life-cycle management policies of storage accounts: whether one deletes old versions of blobs.

https://learn.microsoft.com/azure/storage/blobs/lifecycle-management-policy-structure
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.resources import Resources

_VERSION = "2023-05-01"


def deletes_versions(resources: Resources, account: Mapping[str, Any], place: str) -> bool:
    """Whether the account's policy deletes old versions of all blobs below `place` (container/prefix). Raises
    azure.core's exceptions."""
    found = resources.got(f"{account['id']}/managementPolicies/default", _VERSION)
    rules = [] if found is None else found["properties"]["policy"]["rules"]
    return any(rule.get("enabled", True) and _covers(rule["definition"], f"{place}/") for rule in rules)


def _covers(definition: Mapping[str, Any], place: str) -> bool:
    limits = definition.get("filters", {})
    return (
        "delete" in definition["actions"].get("version", {})
        and "blockBlob" in limits.get("blobTypes", [])
        and not limits.get("blobIndexMatch")
        and any(place.startswith(each) for each in limits.get("prefixMatch") or [""])
    )
