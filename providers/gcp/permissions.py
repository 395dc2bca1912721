"""Who am I at GCP, and what may I read? Must not know prices."""

from __future__ import annotations

import os

from providers.collect.http import Http, Patience
from providers.collect.permissions import Access, examine
from providers.errors import AuthError, PermissionDeniedError
from providers.gcp.prices import API_KEY, BILLING, COMPUTE_ENGINE
from providers.gcp.session import Connections, in_our_words

PERMISSIONS = (
    "compute.regions.list",
    "compute.zones.list",
    "compute.machineTypes.list",
    "compute.acceleratorTypes.list",
)
"""All are in roles/compute.viewer. The Billing Catalog is public: an API key, or any token, is enough."""


def access(connections: Connections | None = None, billing: str = BILLING) -> list[Access]:
    """What the credentials of this environment may read, in order of importance. Takes a call per line."""
    made = Connections() if connections is None else connections
    zones: list[str] = []

    def identity() -> str:
        who = getattr(made.credentials(), "service_account_email", "") or "your own account"
        return f"{who}, project {made.project}"

    def regions() -> str:
        found = made.zones_by_region()
        zones.extend(zone for name in sorted(found) for zone in found[name][:1])
        return f"{len(found)} regions"

    def machine_types() -> str:
        made.list("MachineTypesClient", zone=zones[0] if zones else "us-central1-a", filter='name eq "a2-.*"')
        return "compute.machineTypes.list"

    def accelerators() -> str:
        made.list("AcceleratorTypesClient", zone=zones[0] if zones else "us-central1-a")
        return "compute.acceleratorTypes.list"

    def catalog() -> str:
        key = os.environ.get(API_KEY)
        headers = {"X-Goog-Api-Key": key} if key else made.bearer()
        try:
            Http(Patience(attempts=1)).get_json(
                f"{billing}/v1/services/{COMPUTE_ENGINE}/skus", {"pageSize": "1"}, headers
            )
        except AuthError as error:
            remedy = f"gcloud services enable cloudbilling.googleapis.com; or set {API_KEY} to an API key"
            raise PermissionDeniedError(str(error), action="cloudbilling.googleapis.com", hint=remedy) from error
        return "cloudbilling.skus.list"

    attempts = [
        ("identity", identity),
        ("regions and zones", regions),
        ("machine types", machine_types),
        ("accelerators", accelerators),
        ("the Billing Catalog", catalog),
    ]
    return examine(attempts, in_our_words)
