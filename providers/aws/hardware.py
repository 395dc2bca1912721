"""The hardware of AWS's instance types, as far as prices need it.

The price list gives only a count of GPUs, so the catalogue maps instance families to GPUs; with an account,
DescribeInstanceTypes is used instead. Families that share one GPU among machines (g6f) are deliberately not in the
catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from providers.catalog import instance_types
from providers.hardware import GIB, GPUS, canonical_gpu

MIB = 1 << 20
TOLERANCE = 0.15
"""Vendors round memory differently (16384 MiB and 16 GB); a larger difference means another GPU of the same name."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine type. `gpu` is the canonical name; None if `gpu_name` (the provider's name) is unknown, or if there is
    no GPU (`gpu_name` is then empty)."""

    name: str
    gpu: str | None
    gpu_name: str
    gpu_count: int
    vcpu: int
    memory_bytes: int
    spot: bool = True

    @property
    def is_known(self) -> bool:
        """Whether its GPUs are known for certain."""
        return self.gpu is not None or not self.gpu_name


def gpu_of_family(instance_type: str) -> tuple[str | None, str]:
    """(canonical GPU or None, family) of an instance type."""
    family = instance_type.partition(".")[0]
    return families().get(family), family


@cache
def families() -> Mapping[str, str]:
    """Canonical GPU by instance family, from the catalogue."""
    return {kind.name.partition(".")[0]: kind.gpu for kind in instance_types("aws")}


def gpu_named(name: str, memory_mib: int) -> str | None:
    """The canonical GPU with this name and about this much memory, which distinguishes kinds such as the two of "A100";
    None if unknown.
    """
    for candidate in (f"{name}-{round(memory_mib * MIB / GIB)}GB", name):
        found = canonical_gpu(candidate)
        if found and abs(GPUS[found].memory_bytes / (memory_mib * MIB) - 1) <= TOLERANCE:
            return found
    return None


def described(row: Mapping[str, Any], *, with_cpus: bool = False) -> InstanceType | None:
    """An entry of DescribeInstanceTypes; None if it has no whole GPU, unless it has none at all and `with_cpus`. Raises
    KeyError for an incomplete row."""
    gpus = row.get("GpuInfo", {}).get("Gpus", [])
    if not (gpus[0].get("Count") if gpus else with_cpus):
        return None
    first: Mapping[str, Any] = gpus[0] if gpus else {"Count": 0}
    name, memory_mib = str(first.get("Name", "")), int(first.get("MemoryInfo", {}).get("SizeInMiB", 0))
    return InstanceType(
        row["InstanceType"],
        gpu_named(name, memory_mib) if memory_mib else None,
        f"{first.get('Manufacturer', '')} {name} {memory_mib} MiB".strip() if gpus else "",
        int(first["Count"]),
        int(row["VCpuInfo"]["DefaultVCpus"]),
        int(row["MemoryInfo"]["SizeInMiB"]) * MIB,
        "spot" in row.get("SupportedUsageClasses", ["spot"]),
    )
