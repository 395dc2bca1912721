"""Converts names of GPUs, clouds and sizes from SkyPilot's and dstack's files to those of a job file."""

from __future__ import annotations

import re

from providers.catalog.catalog import instance_types
from providers.hardware import GB, GPUS, canonical_gpu

CLOUDS = {
    name: name
    for name in (
        *("aws", "azure", "digitalocean", "gcp", "hyperstack", "lambda", "nebius", "oci", "primeintellect", "runpod"),
        *("verda", "vultr"),
    )
} | {"do": "digitalocean", "datacrunch": "verda"}
"""The clouds that both tools and our catalogue know, from their name to ours."""

_UNITS = {"k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB", "p": "PiB"}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(?:([kmgtp])i?b?)?", re.ASCII | re.IGNORECASE)
_PLACE = re.compile(r"[A-Za-z0-9*?\[\]!._-]{1,100}", re.ASCII)


def gibibytes(text: str) -> str | None:
    """`32`, `64GB` -> `32 GiB`, `64 GiB`: both tools count in units of 1024. None if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        return None
    return f"{match[1]} {_UNITS[(match[2] or 'g').lower()]}"


def is_pattern(name: str) -> bool:
    """Whether a job file can name it as a cloud or region."""
    return _PLACE.fullmatch(name) is not None


def kinds_named(name: str) -> list[str]:
    """All kinds of GPU that a name without a memory size may mean: `A100` -> `[A100-40GB, A100-80GB]`."""
    exact = canonical_gpu(name)
    if exact is None:
        return []
    family = re.sub(r"-\d+GB$", "", exact)
    if re.search(r"\d+GB", name, re.IGNORECASE):
        return [exact]
    return [kind for kind in GPUS if kind in (exact, family) or re.fullmatch(rf"{family}-\d+GB", kind)]


def kinds_with_memory(low_gb: float, high_gb: float) -> list[str]:
    """The kinds of NVIDIA GPU with memory in this range."""
    real = [gpu for gpu in GPUS.values() if not gpu.simulated and gpu.interconnect != "InfinityFabric"]
    return [gpu.name for gpu in real if low_gb <= gpu.memory_bytes / GB <= high_gb]


def gpus_of(instance_type: str) -> str | None:
    """`A100-40GB:8` for `p4d.24xlarge`; None if the catalogue has no GPU machine of that name."""
    for cloud in dict.fromkeys(CLOUDS.values()):
        for kind in instance_types(cloud):
            if kind.name == instance_type:
                return f"{kind.gpu}:{kind.gpu_count}" if kind.gpu else None
    return None
