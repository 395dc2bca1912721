"""The vCPUs and GPUs that a project may run, in each region and in all regions together.

Spot machines count against the quotas PREEMPTIBLE_... once GCP has granted some in the region, and against the quotas
of other machines until then (docs.cloud.google.com/compute/resource-usage, "Quotas for preemptible resources"). A
family of machine types with its own quota counts against that quota and not against CPUS.

Quotas that GCP does not report here, such as those of its newest families, limit no plan: GCP refuses what exceeds
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from providers.base import Covered, Quota
from providers.errors import UnavailableError
from providers.gcp.codes import ALL_REGIONS, MORE_QUOTA

UNLIMITED = 10**15
"""Units. GCP may state infinity for a quota without a limit."""
SPOT = "PREEMPTIBLE_"
_CARDS = {
    "A100": ("a2-highgpu-*", "a2-megagpu-*"),
    "A100_80GB": ("a2-ultragpu-*",),
    "H100": ("a3-highgpu-*", "a3-edgegpu-*"),
    "H100_MEGA": ("a3-megagpu-*",),
    "H200": ("a3-ultragpu-*",),
    "B200": ("a4-highgpu-*",),
    "L4": ("g2-*",),
    **{card.upper(): (f"n1-*+*xnvidia-tesla-{card}",) for card in ("k80", "p4", "p100", "t4", "v100")},
}
"""GPUs by their names in quotas, and the machine types that have them."""
_COUNTED_TOGETHER = ("a2-*", "g2-*", "n1-*+*")
"""Types whose GPUs count against GPUS_ALL_REGIONS. It is not known whether newer types do."""
_WITHOUT_FAMILY = ("n1", "e2")
"""Families that count against CPUS, unless the region has a quota for them."""

Types = Sequence[str]


def in_region(region: Any, types: Types) -> list[Quota]:
    """The quotas of a region (google.cloud.compute_v1.Region) that one of these machine types counts against. Raises
    UnavailableError if GCP could not look them up."""
    if region.quota_status_warning.code or region.quota_status_warning.message:
        raise UnavailableError(f"GCP cannot look up the quotas of {region.name} now")
    rows = {row.metric: row for row in region.quotas if row.limit >= 0}
    return [
        _quota(rows[metric], region.name, Covered(covers.unit, (region.name,), covers.instance_types, covers.spot))
        for metric, covers in [*_gpus(rows), *_vcpus(rows, types)]
        if metric in rows and _concerns(covers, types)
    ]


def in_project(name: str, project: Any, types: Types) -> list[Quota]:
    """The quotas of all regions together (google.cloud.compute_v1.Project)."""
    covered = {ALL_REGIONS: Covered("gpus", (), _COUNTED_TOGETHER), "CPUS_ALL_REGIONS": Covered("vcpus")}
    return [
        _quota(row, name, covered[row.metric])
        for row in project.quotas
        if row.metric in covered and row.limit >= 0 and _concerns(covered[row.metric], types)
    ]


def _gpus(rows: dict[str, Any]) -> Iterator[tuple[str, Covered]]:
    for card, types in _CARDS.items():
        metric = f"NVIDIA_{card}_GPUS"
        apart = _granted(rows, SPOT + metric)
        yield metric, Covered("gpus", (), types, spot=False if apart else None)
        if apart:
            yield SPOT + metric, Covered("gpus", (), types, spot=True)


def _vcpus(rows: dict[str, Any], types: Types) -> Iterator[tuple[str, Covered]]:
    apart = _granted(rows, f"{SPOT}CPUS")
    spot = False if apart else None
    families = {each.partition("-")[0] for each in types}
    own = {each for each in families if f"{each.upper()}_CPUS" in rows}
    for family in sorted(own):
        yield f"{family.upper()}_CPUS", Covered("vcpus", (), (f"{family}-*",), spot)
    plain = tuple(f"{each}-*" for each in _WITHOUT_FAMILY if each not in own)
    if plain:
        yield "CPUS", Covered("vcpus", (), plain, spot)
    if apart:
        yield f"{SPOT}CPUS", Covered("vcpus", spot=True)


def _granted(rows: dict[str, Any], metric: str) -> bool:
    """Whether GCP has granted a quota for spot machines: without one, they count against the other quota."""
    return metric in rows and (rows[metric].limit > 0 or rows[metric].usage > 0)


def _concerns(covers: Covered, types: Types) -> bool:
    return not covers.instance_types or any(fnmatchcase(each, one) for each in types for one in covers.instance_types)


def _quota(row: Any, scope: str, covers: Covered) -> Quota:
    limit = int(min(row.limit, UNLIMITED))
    return Quota(row.metric, scope, limit, int(min(row.usage, limit)), covers, MORE_QUOTA)
