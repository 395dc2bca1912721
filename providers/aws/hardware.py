"""What AWS's instance types have in them, as far as prices need to know it.

The price list names no GPU, only a count, so the catalogue tells families apart; where DescribeInstanceTypes can be
asked, it is what counts. Families that share one GPU among machines (g6f) are in the catalogue on purpose not.
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
"""Vendors round memory differently (16384 MiB and 16 GB): further apart, it is another GPU of the same name."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """`gpu` is canonical, or None when `gpu_name`, the provider's word for it, is none that we know."""

    name: str
    gpu: str | None
    gpu_name: str
    gpu_count: int
    vcpu: int
    memory_bytes: int
    spot: bool = True


def gpu_of_family(instance_type: str) -> tuple[str | None, str]:
    """(canonical name or None, the family) of an instance type."""
    family = instance_type.partition(".")[0]
    return families().get(family), family


@cache
def families() -> Mapping[str, str]:
    """Family -> canonical GPU, as the catalogue has it."""
    return {kind.name.partition(".")[0]: kind.gpu for kind in instance_types("aws")}


def gpu_named(name: str, memory_mib: int) -> str | None:
    """The canonical GPU with this name and about this much memory: "A100" is two, told apart by memory only."""
    for candidate in (f"{name}-{round(memory_mib * MIB / GIB)}GB", name):
        found = canonical_gpu(candidate)
        if found and abs(GPUS[found].memory_bytes / (memory_mib * MIB) - 1) <= TOLERANCE:
            return found
    return None


def described(row: Mapping[str, Any]) -> InstanceType | None:
    """An entry of DescribeInstanceTypes; None when it has no whole GPU. Raises KeyError for a damaged row."""
    gpus = row.get("GpuInfo", {}).get("Gpus", [])
    if not gpus or not gpus[0].get("Count"):
        return None
    first = gpus[0]
    name, memory_mib = str(first.get("Name", "")), int(first.get("MemoryInfo", {}).get("SizeInMiB", 0))
    return InstanceType(
        row["InstanceType"],
        gpu_named(name, memory_mib) if memory_mib else None,
        f"{first.get('Manufacturer', '')} {name} {memory_mib} MiB".strip(),
        int(first["Count"]),
        int(row["VCpuInfo"]["DefaultVCpus"]),
        int(row["MemoryInfo"]["SizeInMiB"]) * MIB,
        "spot" in row.get("SupportedUsageClasses", ["spot"]),
    )
