"""What Azure's GPU machines have in them: no interface of Azure's names the GPU, and the price list not even a count.

From Azure's pages of virtual machine sizes (read 2026-11). Sizes with a part of a GPU are left out on purpose. Must not
know prices.
"""

from __future__ import annotations

from dataclasses import dataclass

from providers.hardware import GIB, canonical_gpu


@dataclass(frozen=True, slots=True)
class Size:
    """`gpu` is canonical, or None when `gpu_name` is none that we know."""

    name: str
    gpu: str | None
    gpu_name: str
    gpu_count: int
    vcpu: int
    memory_bytes: int


_TABLE = """
NC6 K80 1 6 56
NC12 K80 2 12 112
NC24 K80 4 24 224
NC24r K80 4 24 224
NC6s_v2 P100 1 6 112
NC12s_v2 P100 2 12 224
NC24s_v2 P100 4 24 448
NC24rs_v2 P100 4 24 448
NC6s_v3 V100 1 6 112
NC12s_v3 V100 2 12 224
NC24s_v3 V100 4 24 448
NC24rs_v3 V100 4 24 448
ND40rs_v2 V100-32GB 8 40 672
NC4as_T4_v3 T4 1 4 28
NC8as_T4_v3 T4 1 8 56
NC16as_T4_v3 T4 1 16 110
NC64as_T4_v3 T4 4 64 440
NV36ads_A10_v5 A10 1 36 440
NV36adms_A10_v5 A10 1 36 880
NV72ads_A10_v5 A10 2 72 880
NC24ads_A100_v4 A100-80GB 1 24 220
NC48ads_A100_v4 A100-80GB 2 48 440
NC96ads_A100_v4 A100-80GB 4 96 880
ND96asr_v4 A100-40GB 8 96 900
ND96amsr_A100_v4 A100-80GB 8 96 1900
NC40ads_H100_v5 H100-NVL 1 40 320
NC80adis_H100_v5 H100-NVL 2 80 640
ND96isr_H100_v5 H100 8 96 1900
ND96is_H100_v5 H100 8 96 1900
ND96isr_H200_v5 H200 8 96 1850
ND96is_flex_H100_v5 H100 8 96 1900
ND96isr_MI300X_v5 MI300X 8 96 1850
ND128isr_NDR_GB200_v6 GB200 4 128 900
"""

SIZES = {
    f"standard_{name}".lower(): Size(
        f"Standard_{name}", canonical_gpu(gpu), gpu, int(count), int(vcpu), int(memory) * GIB
    )
    for name, gpu, count, vcpu, memory in (line.split() for line in _TABLE.split("\n") if line)
}
"""By name in lower case: Azure's interfaces don't agree on the case."""

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
