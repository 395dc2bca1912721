"""The hardware of Azure's GPU machines, from the catalogue: Azure's APIs do not name the GPU, and the price list gives
no count. Sizes with part of a GPU are not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from providers.catalog import instance_types
from providers.hardware import GIB


@dataclass(frozen=True, slots=True)
class Size:
    """A machine size with whole GPUs (`gpu` is their canonical name) or without any."""

    name: str
    gpu: str | None
    gpu_count: int
    vcpu: int
    memory_bytes: int


@cache
def sizes() -> Mapping[str, Size]:
    """Sizes by lower-case name, because Azure's APIs differ in case."""
    return {
        kind.name.lower(): Size(kind.name, kind.gpu, kind.gpu_count, kind.vcpu, round(kind.memory_gib * GIB))
        for kind in instance_types("azure")
    }


REGIONS = [
    *("australiacentral", "australiaeast", "australiasoutheast", "austriaeast", "belgiumcentral", "brazilsouth"),
    *("brazilsoutheast", "canadacentral", "canadaeast", "centralindia", "centralus", "chilecentral", "denmarkeast"),
    *("eastasia", "eastus", "eastus2", "francecentral", "francesouth", "germanynorth", "germanywestcentral"),
    *("indonesiacentral", "israelcentral", "italynorth", "japaneast", "japanwest", "jioindiacentral"),
    *("jioindiawest", "koreacentral", "koreasouth", "malaysiawest", "mexicocentral", "newzealandnorth"),
    *("northcentralus", "northeurope", "norwayeast", "norwaywest", "polandcentral", "qatarcentral"),
    *("southafricanorth", "southafricawest", "southcentralus", "southeastasia", "southindia", "spaincentral"),
    *("swedencentral", "swedensouth", "switzerlandnorth", "switzerlandwest", "uaecentral", "uaenorth", "uksouth"),
    *("ukwest", "westcentralus", "westeurope", "westindia", "westus", "westus2", "westus3"),
]
"""Public regions, for use without an account: no API lists them without one."""
