"""What AWS's instance types have in them, as far as prices need to know it. Must not know prices.

The price list names no GPU, only a count, so families are told apart by the table below (AWS's pages of instance types,
read 2026-11). Where DescribeInstanceTypes can be asked, it is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from providers.hardware import GIB, GPUS, canonical_gpu

FAMILIES = {
    "p2": "K80",
    "p3": "V100",
    "p3dn": "V100-32GB",
    "p4d": "A100-40GB",
    "p4de": "A100-80GB",
    "p5": "H100",
    "p5e": "H200",
    "p5en": "H200",
    "p6-b200": "B200",
    "p6-b300": "B300",
    "g3": "M60",
    "g3s": "M60",
    "g4dn": "T4",
    "g5": "A10G",
    "g6": "L4",
    "gr6": "L4",
    "g6e": "L40S",
}
"""Family -> GPU. Families that share one GPU among machines (g6f) are left out on purpose."""
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
    """(canonical name or None, the name that we looked for) by the family of an instance type."""
    name = FAMILIES.get(instance_type.partition(".")[0], "")
    return canonical_gpu(name) if name else None, name or instance_type.partition(".")[0]


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
