"""Checks what a GCP account may do. Every call is a read."""

from __future__ import annotations

from collections.abc import Iterator

from providers.clock import SystemClock
from providers.collect.http import Http, Patience
from providers.collect.permissions import Access, Attempt, examine
from providers.gcp.calls import INSTALL
from providers.gcp.codes import ALL_REGIONS
from providers.gcp.images import Images
from providers.gcp.prices.billing import API_KEY, BILLING, BillingCatalog
from providers.gcp.session import Connections, to_provider_error
from providers.gcp.settings import Settings


def access(
    connections: Connections | None = None, billing: str = BILLING, settings: Settings | None = None
) -> list[Access]:
    """What the credentials of this environment may read, in order of importance; with `settings`, also what renting as
    they say needs to read. Makes one or two calls per entry."""
    if settings is not None:
        connections = connections or Connections(settings.project, settings.endpoint)
        billing = settings.catalog or billing
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

    attempts: list[Attempt] = [
        ("identity", identity),
        ("regions and zones", regions),
        ("machine types", machine_types),
        ("accelerators", accelerators),
        ("the Billing Catalog", catalog),
    ]
    if settings is not None:
        attempts += _machines(made, settings)
    return examine(attempts, to_provider_error)


def _machines(made: Connections, settings: Settings) -> Iterator[Attempt]:
    images = Images(made, SystemClock())
    yield "image", lambda: images.named(settings.image, settings.disk_gb).name
    yield "list of machines", lambda: f"{_count(made)} of Tradewind"
    yield "limits", lambda: _limits(made, settings)


def _count(made: Connections) -> int:
    return sum(len(listed.instances) for _, listed in made.aggregated("InstancesClient", f"labels.{INSTALL}:*"))


def _limits(made: Connections, settings: Settings) -> str:
    """GPUs of all regions, and spot vCPUs of the configured ones: without them, nothing can be launched."""
    project = made.ask("ProjectsClient", "get")
    found = [f"{quota.metric} {quota.limit:.0f}" for quota in project.quotas if quota.metric == ALL_REGIONS]
    for region in made.list("RegionsClient"):
        if region.name in settings.regions:
            found += [
                f"{quota.metric} in {region.name} {quota.limit:.0f}"
                for quota in region.quotas
                if quota.metric == "PREEMPTIBLE_CPUS"
            ]
    return ", ".join(found) or "none reported"
