"""What Azure's GPU machines have in them: no interface of Azure's names the GPU, and the price list not even a count.
So it is the catalogue that knows; sizes with a part of a GPU are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from providers.catalog import instance_types
from providers.hardware import GIB


@dataclass(frozen=True, slots=True)
class Size:
    """A machine with whole GPUs; `gpu` is canonical."""

    name: str
    gpu: str
    gpu_count: int
    vcpu: int
    memory_bytes: int


@cache
def sizes() -> Mapping[str, Size]:
    """By name in lower case: Azure's interfaces don't agree on the case."""
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
"""Public regions, for those without an account: no interface lists them without one."""
