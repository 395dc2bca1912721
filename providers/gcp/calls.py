"""The calls that this package makes, and the custom role that allows only these."""

from __future__ import annotations

from collections.abc import Collection

from providers.policy import Call, PolicyDocument, Store, Use, permissions

INSTALL = "tradewind-install"
"""The label that every machine is launched with."""

CALLS = (
    *(
        Call(name, Use.PRICES)
        for name in (
            "compute.regions.list",
            "compute.machineTypes.list",
            "compute.acceleratorTypes.list",
        )
    ),
    *(
        Call(name, Use.MACHINES)
        for name in (
            *("compute.instances.create", "compute.instances.setMetadata", "compute.instances.setLabels"),
            *("compute.disks.create", "compute.disks.setLabels", "compute.images.useReadOnly"),
            *("compute.subnetworks.use", "compute.subnetworks.useExternalIp"),
            *("compute.images.get", "compute.images.getFromFamily"),
            *("compute.instances.get", "compute.instances.list", "compute.instances.delete"),
            *("compute.zoneOperations.get", "compute.regionOperations.get"),
            *("compute.globalOperations.list", "compute.projects.get"),
            *("compute.networks.get", "compute.firewalls.list"),
        )
    ),
    *(
        Call(name, Use.NETWORKS)
        for name in (
            *("compute.networks.get", "compute.networks.create", "compute.networks.delete"),
            *("compute.networks.updatePolicy", "compute.globalOperations.get"),
            *("compute.firewalls.list", "compute.firewalls.create", "compute.firewalls.delete"),
        )
    ),
    *(
        Call(name, Use.BUCKET)
        for name in (
            *("storage.buckets.get", "storage.buckets.create", "storage.buckets.update", "storage.buckets.delete"),
            "storage.objects.list",
        )
    ),
)
"""The calls for prices are all in roles/compute.viewer, the others in roles/compute.instanceAdmin.v1. The Billing
Catalog is public: an API key or any token is enough."""


def policy(uses: Collection[Use], store: Store | None = None) -> PolicyDocument:
    """The role for these uses, as `gcloud iam roles create` reads it."""
    if store is None:
        uses = [each for each in uses if each is not Use.BUCKET]
    lines = [
        "title: Tradewind",
        f"description: The actions of Tradewind in a project ({', '.join(each for each in Use if each in uses)})",
        "stage: GA",
        "includedPermissions:",
        *(f"- {each}" for each in permissions(CALLS, *uses)),
    ]
    return PolicyDocument(
        "\n".join(lines), "yaml", "gcloud iam roles create tradewind --project PROJECT --file role.yaml"
    )
