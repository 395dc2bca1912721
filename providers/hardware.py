"""Facts of accelerators, and the names that clouds use for them.

The figures are from the vendors' data sheets, in bytes, bytes/s and dense FLOP/s (figures published only "with
sparsity" are halved). Memory is counted in 10^9 bytes, as on the sheets. For boards with two GPUs (K80, M60), the
figures are for one GPU, which is the unit that clouds rent and count. The `SIM-*` kinds belong to the `local` provider:
this machine's CPU with a declared throttle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

GB = 1_000_000_000
GIB = 1 << 30
TFLOPS = 1e12

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of accelerator. Peak rates are in FLOP/s; `bandwidth_bytes_per_s` is that of the device memory.

    `fp16_flops` is the best dense rate for half-precision operands: that of tensor cores if present, otherwise the FP32
    rate where half precision is no faster. `tf32_flops` and `fp8_flops` are 0 where the chip lacks the format.
    `interconnect` names the link between the GPUs of one machine; `nvlink_bytes_per_s` is its total per GPU in both
    directions according to the data sheet (AMD: Infinity Fabric), 0 where GPUs communicate over PCIe. One kind may be
    sold with and without it (A100, V100): the catalogue's instance types say which. `watts` is the maximum power of one
    GPU's board, which limits the clock under full load. `generation` is the chip design, shared by kinds whose measured
    efficiency applies to each other, or the kind's own name. `throttle` is the fraction of this host's speed that a
    simulated kind provides (1.0 for real hardware: nothing sleeps). `source` names the data sheet.
    """

    name: str
    memory_bytes: int
    fp32_flops: float
    fp16_flops: float
    bandwidth_bytes_per_s: float
    interconnect: str
    throttle: float = 1.0
    simulated: bool = False
    tf32_flops: float = 0.0
    fp8_flops: float = 0.0
    nvlink_bytes_per_s: float = 0.0
    watts: float = 0.0
    source: str = ""
    generation: str = ""

    @property
    def link_bytes_per_s(self) -> float:
        """Bandwidth between two GPUs of one machine in both directions together: NVLink, otherwise 16 lanes of PCIe."""
        return self.nvlink_bytes_per_s or _PCIE_BYTES_PER_S[self.interconnect]

    def peak_flops(self, precision: Precision) -> float:
        """Peak FLOP/s at a precision, or at the next wider one where the chip lacks it, as frameworks fall back.

        bfloat16 runs on the tensor cores of chips that have TF32 (Ampere and later, CDNA 3), otherwise at the FP32
        rate.
        """
        if precision == "fp8":
            return self.fp8_flops or self.fp16_flops
        if precision == "bf16":
            return self.fp16_flops if self.tf32_flops else self.fp32_flops
        if precision == "fp16":
            return self.fp16_flops
        return (self.tf32_flops if precision == "tf32" else 0.0) or self.fp32_flops


# PCI-SIG: 16 lanes, both directions.
_PCIE_BYTES_PER_S = {"PCIe3": 32e9, "PCIe4": 64e9, "PCIe5": 128e9}

_GENERATIONS = {
    name: generation
    for generation, names in (
        ("Kepler", "K80"),
        ("Maxwell", "M60"),
        ("Pascal", "P4 P40 P100"),
        ("Volta", "V100 V100-32GB"),
        ("Turing", "T4 T4G RTX-6000"),
        ("Ampere", "A10 A10G A40 A4000 A5000 A6000 RTX-3090"),
        ("GA100", "A30 A100-40GB A100-80GB"),
        ("Ada", "L4 L40 L40S RTX-6000-ADA RTX-4090"),
        ("Hopper", "H100 H100-PCIE H100-NVL GH200 H200 H200-NVL"),
        ("Blackwell", "B200 GB200 B300"),
        ("GB202", "RTX-5090 RTX-PRO-6000"),
        ("CDNA3", "MI300X MI325X"),
    )
    for name in names.split()
}


def _gpu(
    name: str,
    memory_gb: float,
    bandwidth_gb_per_s: float,
    tflops: tuple[float, float, float, float],
    link: str,
    link_gb_per_s: float,
    watts: float,
    source: str,
) -> Gpu:
    """`tflops` are FP32, TF32, FP16 and FP8 in TFLOP/s; 0 where the chip lacks the format."""
    fp32, tf32, fp16, fp8 = (figure * TFLOPS for figure in tflops)
    return Gpu(
        name,
        round(memory_gb * GB),
        fp32,
        fp16 or fp32,
        bandwidth_gb_per_s * 1e9,
        link,
        tf32_flops=tf32,
        fp8_flops=fp8,
        nvlink_bytes_per_s=link_gb_per_s * 1e9,
        watts=watts,
        source=source,
        generation=_GENERATIONS.get(name, name),
    )


def _sim(name: str, throttle: float) -> Gpu:
    return Gpu(name, 4 * GIB, throttle * TFLOPS, throttle * TFLOPS, throttle * 20e9, "none", throttle, simulated=True)


# name, memory GB, memory GB/s, (FP32, TF32, FP16, FP8) dense TFLOP/s, link, link GB/s, watts, data sheet
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("K80", 12, 240, (4.1, 0, 0, 0), "PCIe3", 0, 150, "NVIDIA Tesla K80 board, one GPU at 824 MHz"),
        _gpu("M60", 8, 160, (4.82, 0, 0, 0), "PCIe3", 0, 150, "NVIDIA Tesla M60 data sheet, half of the board"),
        _gpu("P4", 8, 192, (5.5, 0, 0, 0), "PCIe3", 0, 75, "NVIDIA Tesla P4 data sheet"),
        _gpu("P40", 24, 346, (11.8, 0, 0, 0), "PCIe3", 0, 250, "NVIDIA Tesla P40 data sheet"),
        _gpu("P100", 16, 732, (9.3, 0, 18.7, 0), "PCIe3", 0, 250, "NVIDIA Tesla P100 PCIe data sheet"),
        _gpu("V100", 16, 900, (15.7, 0, 125, 0), "NVLink2", 300, 300, "NVIDIA V100 data sheet, SXM2"),
        _gpu("V100-32GB", 32, 900, (15.7, 0, 125, 0), "NVLink2", 300, 300, "NVIDIA V100 data sheet, SXM2"),
        _gpu("T4", 16, 320, (8.1, 0, 65, 0), "PCIe3", 0, 70, "NVIDIA T4 product brief"),
        _gpu("T4G", 16, 320, (8.1, 0, 65, 0), "PCIe3", 0, 70, "AWS EC2 G5g page: T4G; the T4's product brief"),
        _gpu("RTX-6000", 24, 672, (16.3, 0, 130.5, 0), "PCIe3", 0, 295, "NVIDIA Quadro RTX 6000 data sheet"),
        _gpu("A10", 24, 600, (31.2, 62.5, 125, 0), "PCIe4", 0, 150, "NVIDIA A10 data sheet"),
        _gpu("A10G", 24, 600, (31.2, 35, 70, 0), "PCIe4", 0, 300, "NVIDIA A10G data sheet; FP32 by AWS, W by G5"),
        _gpu("A30", 24, 933, (10.3, 82, 165, 0), "PCIe4", 0, 165, "NVIDIA A30 data sheet"),
        _gpu("A40", 48, 696, (37.4, 74.8, 149.7, 0), "PCIe4", 0, 300, "NVIDIA A40 data sheet"),
        _gpu("A4000", 16, 448, (19.2, 38.3, 76.7, 0), "PCIe4", 0, 140, "NVIDIA RTX A4000 data sheet"),
        _gpu("A5000", 24, 768, (27.8, 55.5, 111.1, 0), "PCIe4", 0, 230, "NVIDIA RTX A5000 data sheet"),
        _gpu("A6000", 48, 768, (38.7, 77.4, 154.8, 0), "PCIe4", 0, 300, "NVIDIA RTX A6000 data sheet"),
        _gpu("RTX-3090", 24, 936, (35.6, 35.6, 71, 0), "PCIe4", 0, 350, "NVIDIA Ampere GA102 white paper"),
        _gpu("A100-40GB", 40, 1555, (19.5, 156, 312, 0), "NVLink3", 600, 400, "NVIDIA A100 data sheet"),
        _gpu("A100-80GB", 80, 2039, (19.5, 156, 312, 0), "NVLink3", 600, 400, "NVIDIA A100 data sheet, SXM"),
        _gpu("L4", 24, 300, (30.3, 60, 121, 242.5), "PCIe4", 0, 72, "NVIDIA L4 data sheet"),
        _gpu("L40", 48, 864, (90.5, 90.5, 181, 362), "PCIe4", 0, 300, "NVIDIA L40 data sheet"),
        _gpu("L40S", 48, 864, (91.6, 183, 362, 733), "PCIe4", 0, 350, "NVIDIA L40S data sheet"),
        _gpu("RTX-6000-ADA", 48, 960, (91.1, 182.1, 364.2, 728.5), "PCIe4", 0, 300, "NVIDIA RTX 6000 Ada data sheet"),
        _gpu("RTX-4090", 24, 1008, (82.6, 82.6, 165.2, 330.3), "PCIe4", 0, 450, "NVIDIA Ada architecture white paper"),
        _gpu("H100", 80, 3350, (67, 494.5, 989.5, 1979), "NVLink4", 900, 700, "NVIDIA H100 data sheet, SXM"),
        _gpu("H100-PCIE", 80, 2000, (51, 378, 756, 1513), "PCIe5", 0, 350, "NVIDIA H100 data sheet, PCIe"),
        _gpu("H100-NVL", 94, 3900, (60, 417.5, 835.5, 1670.5), "NVLink4", 600, 400, "NVIDIA H100 data sheet, NVL"),
        _gpu("GH200", 96, 4000, (67, 494.5, 989.5, 1979), "NVLink4", 900, 700, "NVIDIA GH200 data sheet, 96 GB HBM3"),
        _gpu("H200", 141, 4800, (67, 494.5, 989.5, 1979), "NVLink4", 900, 700, "NVIDIA H200 data sheet, SXM"),
        _gpu("H200-NVL", 141, 4800, (60, 417.5, 835.5, 1670.5), "NVLink4", 900, 600, "NVIDIA H200 data sheet, NVL"),
        _gpu("RTX-5090", 32, 1792, (104.8, 104.8, 209.5, 419), "PCIe5", 0, 575, "NVIDIA RTX Blackwell white paper"),
        # Tensor rates from the sheet's FP32 by the ratios (2, 4, 8) of the RTX PRO Blackwell white paper.
        _gpu("RTX-PRO-6000", 96, 1597, (120, 240, 480, 960), "PCIe5", 0, 600, "NVIDIA RTX PRO 6000 Server sheet"),
        _gpu("B200", 180, 8000, (75, 1125, 2250, 4500), "NVLink5", 1800, 1000, "NVIDIA HGX B200 data sheet, per GPU"),
        _gpu("GB200", 186, 8000, (80, 1250, 2500, 5000), "NVLink5", 1800, 1200, "NVIDIA GB200 NVL72 data sheet, a GPU"),
        _gpu("B300", 262, 8000, (75, 1125, 2250, 4500), "NVLink5", 1800, 1100, "NVIDIA HGX B300 data sheet, per GPU"),
        _gpu(
            "MI300X",
            192,
            5300,
            (163.4, 653.7, 1307.4, 2614.9),
            "InfinityFabric",
            896,
            750,
            "AMD Instinct MI300X data sheet",
        ),
        _gpu(
            "MI325X",
            256,
            6000,
            (163.4, 653.7, 1307.4, 2614.9),
            "InfinityFabric",
            896,
            1000,
            "AMD Instinct MI325X data sheet",
        ),
        _sim("SIM-S", 0.25),
        _sim("SIM-M", 0.5),
        _sim("SIM-L", 1.0),
    )
}
"""Facts by canonical name. `canonical_gpu` resolves the names that clouds use."""

# Words that do not identify the chip.
_NOISE = frozenset(
    {
        "NVIDIA",
        "AC",
        "AMD",
        "TESLA",
        "GEFORCE",
        "QUADRO",
        "INSTINCT",
        "GPU",
        "ACCELERATOR",
        "TENSOR",
        "CORE",
        "HBM2",
        "HBM2E",
        "HBM3",
        "HBM3E",
        "OAM",
        "HGX",
        "MEGA",
        "VWS",
        "GENERATION",
        "BLACKWELL",
        "SERVER",
        "WORKSTATION",
        "EDITION",
        "SECURE",
        "COMMUNITY",
    }
)
_MEMORY = re.compile(r"^(\d+)(?:GB|GIB|G)$")
_FORM = re.compile(r"^(SXM|PCIE|NVL)\d?$")
_COUNT_FIRST = re.compile(r"\s*(?P<count>[1-9]\d{0,3})\s*[xX*]\s*(?P<kind>[^\s:]+)")
_COUNT_LAST = re.compile(r"\s*(?P<kind>[^\s:]+?)\s*[xX*]\s*(?P<count>[1-9]\d{0,3})\s*$")
_COUNT = re.compile(r"^\d+X(?=$|[A-Z])")
_MEMORY_TOLERANCE = 0.1  # B300: 262 or 288 GB; B200: 180 or 192 GB, depending on how a cloud counts
_SAME = {
    "RTXA4000": "A4000",
    "RTXA5000": "A5000",
    "RTXA6000": "A6000",
    "3090": "RTX3090",
    "4090": "RTX4090",
    "5090": "RTX5090",
    "6000ADA": "RTX6000ADA",
    "RTXPRO6000BSE": "RTXPRO6000",
    "RTXPRO6000S": "RTXPRO6000",
    "RTXPRO6000WS": "RTXPRO6000",
}
# The memory listed with a GH200 is often that of its CPU.
_GH200_CPU_MEMORY = ("GH200", 480)

# Azure names machines by series, not by chip: Standard_NC6s_v3, standardNDSv2Family.
_AZURE = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"ND\d*I?SR?F?(NDR)?GB200V6", "GB200"),
        (r"NC\d*L?DS(XL)?RTXPRO6000(BSE)?V6", "RTX-PRO-6000"),
        (r"ND\d*I?SR?F?(FLEX|NOIB)?H100V5", "H100"),
        (r"NCC?\d*ADI?SH100V5", "H100-NVL"),
        (r"ND\d*I?SR?F?H200V5", "H200"),
        (r"ND\d*I?SR?F?MI300XV5", "MI300X"),
        (r"ND\d*AMSR?(A100V4|V4A100|V4)", "A100-80GB"),
        (r"ND\d*ASR?(A100V4|V4A100|V4)", "A100-40GB"),
        (r"NC\d*ADSA100V4", "A100-80GB"),
        (r"N[CV]\d*ADM?SA10V[45]", "A10"),
        (r"NC\d*AST4V3", "T4"),
        (r"NC\d*R?SV3", "V100"),
        (r"ND\d*R?SV2", "V100-32GB"),
        (r"NC\d*R?SV2", "P100"),
        (r"ND\d*R?S", "P40"),
        (r"NC\d*R?(PROMO)?", "K80"),
        (r"NV\d*(PROMO|SV2|SV3)?", "M60"),
    )
)


def _parts(name: str) -> tuple[str, str | None, int | None]:
    """The normalized name as one word, its form factor and its memory in GB, if given."""
    form, memory = None, None
    words = []
    for word in (_COUNT.sub("", each) for each in re.split(r"[\s_/\-]+", name.strip().upper())):
        if found := _MEMORY.match(word):
            memory = int(found[1])
        elif found := _FORM.match(word):
            form = found[1]
        elif word not in _NOISE:
            words.append(word)
    key = "".join(words)
    for suffix in ("SXM", "PCIE", "NVL"):
        if key.endswith(suffix):
            key, form = key.removesuffix(suffix), suffix
    return _SAME.get(key, key), form, memory


def _families() -> dict[str, list[tuple[Gpu, str | None]]]:
    families: dict[str, list[tuple[Gpu, str | None]]] = {}
    for gpu in GPUS.values():
        key, form, _ = _parts(gpu.name)
        families.setdefault(key, []).append((gpu, form))
    return families


_FAMILIES = _families()


def canonical_gpu(name: str) -> str | None:
    """The canonical name for any cloud's name of a GPU, or for an Azure size or family; None if it is unknown.

    Case, separators, vendor words, counts (`8x`), form factor and memory are parsed; an A100 without a memory size has
    40 GB. A name with a memory size that no such GPU has is unknown.

    >>> canonical_gpu("nvidia-tesla-v100"), canonical_gpu("NVIDIA A100-SXM4-80GB"), canonical_gpu("H900")
    ('V100', 'A100-80GB', None)
    >>> canonical_gpu("gpu_8x_h100_sxm5"), canonical_gpu("Standard_NC24ads_A100_v4"), canonical_gpu("T4-80GB")
    ('H100', 'A100-80GB', None)
    """
    return next(iter(gpus_named(name)), None)


@lru_cache(maxsize=4096)
def gpus_counted(text: str) -> tuple[str, int] | None:
    """The name and the number of GPUs that a person gives as one word; None if `text` has another form.
    `gpus_named` ignores the number.

    >>> gpus_counted("8xH100"), gpus_counted("a100 x 4"), gpus_counted("RTX4090")
    (('H100', 8), ('a100', 4), None)
    """
    for found in (_COUNT_FIRST.match(text), _COUNT_LAST.match(text)):
        if found and gpus_named(found["kind"]):
            return found["kind"], int(found["count"])
    return None


def gpus_named(name: str) -> tuple[str, ...]:
    """The canonical names of all GPUs that a person may mean by `name`; empty if it is unknown.

    There are several only if the canonical names include the memory size and `name` does not. Job files and filters
    are read this way.

    >>> gpus_named("A100"), gpus_named("v100"), gpus_named("A100-80GB")
    (('A100-40GB', 'A100-80GB'), ('V100',), ('A100-80GB',))
    """
    key, form, memory = _parts(name)
    if (key, memory) == _GH200_CPU_MEMORY:
        memory = None
    members = _FAMILIES.get(key)
    if members is None:
        found = _of_azure(name)
        return () if found is None else (found,)
    same_form = [gpu for gpu, its in members if its == form]
    fitting = same_form or [gpu for gpu, its in members if its is None]
    if memory is None:
        distinct = [gpu.name for gpu in fitting if _parts(gpu.name)[2] is not None]
        return tuple(distinct) if len(distinct) == len(fitting) else (fitting[0].name,)
    for gpu in (*fitting, *(gpu for gpu, _ in members)):
        if abs(gpu.memory_bytes / GB - memory) <= _MEMORY_TOLERANCE * memory and (form is None or gpu in fitting):
            return (gpu.name,)
    return ()


def _of_azure(name: str) -> str | None:
    size = re.sub(r"[\s_\-]+", "", name.strip().upper())
    if not size.startswith("STANDARD"):
        return None
    size = size.removeprefix("STANDARD").removesuffix("FAMILY")
    return next((gpu for pattern, gpu in _AZURE if pattern.fullmatch(size)), None)
