"""The calls that this package makes, and the custom role that allows these and nothing else."""

from __future__ import annotations

from collections.abc import Collection

from providers.policy import Call, PolicyDocument, Store, Use, permissions

CALLS = tuple(
    Call(name, Use.PRICES)
    for name in (
        "compute.regions.list",
        "compute.zones.list",
        "compute.machineTypes.list",
        "compute.acceleratorTypes.list",
    )
)
"""All are in roles/compute.viewer. The Billing Catalog is public: an API key or any token is enough."""


def policy(uses: Collection[Use], _store: Store | None = None) -> PolicyDocument:
    """The role for these uses, as `gcloud iam roles create` reads it."""
    lines = [
        "title: Tradewind",
        f"description: What Tradewind does in a project ({', '.join(each for each in Use if each in uses)})",
        "stage: GA",
        "includedPermissions:",
        *(f"- {each}" for each in permissions(CALLS, *uses)),
    ]
    return PolicyDocument(
        "\n".join(lines), "yaml", "gcloud iam roles create tradewind --project PROJECT --file role.yaml"
    )
