"""Gpu: canonical facts of accelerators, and the names that clouds use for them.

Must not know: prices or availability. Figures are the vendors' data sheets (dense, without sparsity), bytes and FLOP/s.
The `SIM-*` kinds belong to the `local` provider: this machine's CPU with a declared throttle; they exist nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 1_000_000_000
GIB = 1 << 30
TFLOPS = 1e12


@dataclass(frozen=True, slots=True)
class Gpu:
    """`peak_flops` in FLOP/s by precision, `bandwidth` in bytes/s of device memory.

    `throttle` is the fraction of this host's speed that a simulated kind gives (1.0 for real hardware: nothing sleeps).
    """

    name: str
    memory_bytes: int
    fp32_flops: float
    fp16_flops: float
    bandwidth_bytes_per_s: float
    interconnect: str
    throttle: float = 1.0
    simulated: bool = False


def _sim(name: str, throttle: float) -> Gpu:
    return Gpu(name, 4 * GIB, throttle * TFLOPS, throttle * TFLOPS, throttle * 20e9, "none", throttle, simulated=True)


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("K80", 12 * GB, 4.1e12, 4.1e12, 240e9, "PCIe3"),
        Gpu("P100", 16 * GB, 9.3e12, 18.7e12, 732e9, "PCIe3"),
        Gpu("T4", 16 * GB, 8.1e12, 65e12, 320e9, "PCIe3"),
        Gpu("V100", 16 * GB, 15.7e12, 125e12, 900e9, "NVLink2"),
        Gpu("A10G", 24 * GB, 31.2e12, 70e12, 600e9, "PCIe4"),
        Gpu("L4", 24 * GB, 30.3e12, 121e12, 300e9, "PCIe4"),
        Gpu("L40S", 48 * GB, 91.6e12, 362e12, 864e9, "PCIe4"),
        Gpu("A100-40GB", 40 * GB, 19.5e12, 312e12, 1555e9, "NVLink3"),
        Gpu("A100-80GB", 80 * GB, 19.5e12, 312e12, 2039e9, "NVLink3"),
        Gpu("H100", 80 * GB, 66.9e12, 989e12, 3350e9, "NVLink4"),
        Gpu("H200", 141 * GB, 66.9e12, 989e12, 4800e9, "NVLink4"),
        Gpu("B200", 180 * GB, 80e12, 2250e12, 8000e9, "NVLink5"),
        _sim("SIM-S", 0.25),
        _sim("SIM-M", 0.5),
        _sim("SIM-L", 1.0),
    )
}
"""Canonical name -> facts. Aliases of clouds resolve through `canonical_gpu`."""

_ALIASES = {
    "A100": "A100-40GB",
    "A100-SXM4-40GB": "A100-40GB",
    "A100-SXM4-80GB": "A100-80GB",
    "H100-SXM": "H100",
    "H100-80GB": "H100",
    "H100-SXM5-80GB": "H100",
    "H200-SXM": "H200",
    "V100-16GB": "V100",
}


def canonical_gpu(name: str) -> str | None:
    """The canonical name of a GPU, ignoring case, vendor prefixes and known aliases; None when it is unknown.

    >>> canonical_gpu("nvidia-tesla-v100"), canonical_gpu("a100"), canonical_gpu("H900")
    ('V100', 'A100-40GB', None)
    """
    key = name.strip().upper().replace(" ", "-").replace("_", "-")
    for prefix in ("NVIDIA-", "TESLA-", "GPU-"):
        key = key.removeprefix(prefix)
    key = _ALIASES.get(key, key)
    return key if key in GPUS else None
