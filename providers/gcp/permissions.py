"""Checks what a GCP account may read."""

from __future__ import annotations

from providers.collect.http import Http, Patience
from providers.collect.permissions import Access, examine
from providers.gcp.prices.billing import API_KEY, BILLING, BillingCatalog
from providers.gcp.session import Connections, to_provider_error


def access(connections: Connections | None = None, billing: str = BILLING) -> list[Access]:
    """What the credentials of this environment may read, in order of importance. Makes one call per entry."""
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
        found = BillingCatalog(Http(Patience(attempts=1)), made, billing)
        next(found.pages({"pageSize": "1"}))
        refused = f", with the credentials: {API_KEY} was rejected" if found.key_refused is not None else ""
        return f"cloudbilling.skus.list{refused}"

    attempts = [
        ("identity", identity),
        ("regions and zones", regions),
        ("machine types", machine_types),
        ("accelerators", accelerators),
        ("the Billing Catalog", catalog),
    ]
    return examine(attempts, to_provider_error)
