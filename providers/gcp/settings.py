"""The settings in `[providers.gcp]` of tradewind.toml."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`regions` and `machine_types` may be rented; a type of N1 may have GPUs (`n1-standard-8+1xnvidia-tesla-t4`).

    `image` is `projects/PROJECT/global/images/NAME`, or `.../images/family/NAME` for the newest image of a family;
    `disk_gb` is the size of a machine's disk in GiB, without LaunchSpec.disk_gb. `project` None: the project of the
    credentials. `endpoint` and `catalog` are the addresses of the Compute API and of the Billing Catalog; None:
    Google's.
    """

    regions: tuple[str, ...]
    machine_types: tuple[str, ...]
    image: str
    disk_gb: int
    project: str | None = None
    endpoint: str | None = None
    catalog: str | None = None
