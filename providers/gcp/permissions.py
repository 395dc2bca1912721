"""Checks what a GCP account may do. No call changes anything."""

from __future__ import annotations

from collections.abc import Iterator

from providers.catalog import instance_types
from providers.clock import SystemClock
from providers.collect.http import Http, Patience
from providers.collect.permissions import Access, Attempt, examine
from providers.errors import PermissionDeniedError, ProviderError
from providers.gcp.calls import CALLS, INSTALL
from providers.gcp.codes import ALL_REGIONS
from providers.gcp.images import Images
from providers.gcp.names import PROVIDER
from providers.gcp.prices.billing import API_KEY, BILLING, BillingCatalog
from providers.gcp.session import Connections, to_provider_error
from providers.gcp.settings import Settings
from providers.hardware import canonical_gpu
from providers.machine.drivers import DRIVER, cuda_of_torch, fitness
from providers.policy import Use, permissions


def access(
    connections: Connections | None = None, billing: str = BILLING, settings: Settings | None = None
) -> list[Access]:
    """What the credentials of this environment may read, in order of importance; with `settings`, also what renting
    with them needs to read. Makes one or two calls per entry."""
    if settings is not None:
        connections = connections or Connections(settings.project, settings.endpoint)
        billing = settings.catalog or billing
    made = Connections() if connections is None else connections
    zones: list[str] = []

    def identity() -> str:
        made.bearer()  # only now does an expired key or login show
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
    return examine(attempts, to_provider_error, optional={DRIVER})


def _machines(made: Connections, settings: Settings) -> Iterator[Attempt]:
    images = Images(made, SystemClock())
    yield "permissions", lambda: _granted(made)
    yield "image", lambda: images.named(settings.image, settings.disk_gb).name
    yield DRIVER, lambda: _driver(images, settings)
    yield "list of machines", lambda: f"{_count(made)} of Tradewind"
    yield "limits", lambda: _limits(made, settings)


def _granted(made: Connections) -> str:
    """Whether the account has the permissions of the role that `doctor --policy` prints.

    Source: cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions, which itself needs no
    permission.
    """
    wanted = permissions(CALLS, Use.PRICES, Use.MACHINES, Use.NETWORKS)
    url = f"{made.resource_manager}/v1/projects/{made.project}:testIamPermissions"
    try:
        answer = Http(Patience(attempts=1)).post_json(url, {"permissions": wanted}, made.bearer())
    except ProviderError as error:
        return f"not checked ({error}); to check: gcloud services enable cloudresourcemanager.googleapis.com"
    granted = answer.get("permissions", []) if isinstance(answer, dict) else []
    if missing := [each for each in wanted if each not in granted]:
        raise PermissionDeniedError(
            f"{len(missing)} of {len(wanted)} permissions are missing: {', '.join(missing)}",
            action=missing[0],
            hint="tradewind doctor --policy gcp > role.yaml; gcloud iam roles create tradewind --project "
            f"{made.project} --file role.yaml; gcloud projects add-iam-policy-binding {made.project} --member=MEMBER "
            f"--role=projects/{made.project}/roles/tradewind",
        )
    return f"all {len(wanted)} of the role that `tradewind doctor --policy gcp` prints"


def _driver(images: Images, settings: Settings) -> str:
    """The driver and CUDA that the names of the image and its family state."""
    attached = (each.partition("+")[2].partition("x")[2] for each in settings.machine_types)
    gpus = [canonical_gpu(each) for each in attached if each]
    gpus += [kind.gpu for kind in instance_types(PROVIDER) if kind.name in settings.machine_types]
    names = (
        f"{settings.image.rpartition('/')[2]} {images.named(settings.image, settings.disk_gb).name.rpartition('/')[2]}"
    )
    return fitness(names, gpus, "providers.gcp.image", cuda_of_torch())


def _count(made: Connections) -> int:
    return sum(len(listed.instances) for _, listed in made.aggregated("InstancesClient", f"labels.{INSTALL}:*"))


def _limits(made: Connections, settings: Settings) -> str:
    """GPUs of all regions, and spot vCPUs of the configured ones: without these quotas, no such machine can be
    launched."""
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
