"""Whether the NVIDIA driver that an image states fits the machines' GPUs and torch's CUDA.

Google's images for training state the driver's branch and CUDA in their names
(pytorch-2-7-cu128-ubuntu-2204-nvidia-570), AWS's Deep Learning AMIs list the supported instance families in their
description. Other images state nothing and cannot be checked before a machine has started.

The oldest branch for each CUDA: docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html. GPUs and
the last CUDA and branch for them: "Deprecated Architectures" in the release notes of CUDA 12 and 13, and NVIDIA's list
of legacy GPUs (R470, R580). Ada and Hopper came with CUDA 11.8, whose branch is 520, Blackwell with CUDA 12.8 (570).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from providers.errors import SetupError
from providers.hardware import GPUS

DRIVER = "driver of the image"
"""The name of this check in `tradewind doctor`."""
UNKNOWN = "the image does not state its driver; a machine whose GPUs do not work reports it at its start"
_DRIVER = re.compile(r"nvidia[ _-](\d{3})\b")
_CUDA = re.compile(r"\bcu(\d{2})\d\b")
_BUILT_FOR = re.compile(r"^cuda\b[^=]*= '(\d+)\.", re.MULTILINE)
_LEAST_FOR_CUDA = {11: 450, 12: 525, 13: 580}
_LEAST_FOR = {"Ada": 520, "Hopper": 520, "Blackwell": 570, "GB202": 570}
_LAST_FOR = {"Kepler": (470, 11), **dict.fromkeys(("Maxwell", "Pascal", "Volta"), (580, 12))}
"""Generation of GPUs -> the last driver branch and the last CUDA that support it."""
_OTHERS = ("CDNA3",)
"""Generations that need no NVIDIA driver."""


@dataclass(frozen=True, slots=True)
class Software:
    """The driver branch of an image and the major version of its CUDA; None: not stated."""

    driver: int | None
    cuda: int | None


def stated(text: str) -> Software:
    """The driver and CUDA in an image's names and descriptions."""
    driver, cuda = _DRIVER.search(text.lower()), _CUDA.search(text.lower())
    return Software(int(driver[1]) if driver else None, int(cuda[1]) if cuda else None)


def fitness(text: str, gpus: Iterable[str | None], setting: str, torch_cuda: int | None = None) -> str:
    """A line about an image (`text`: its names) on machines with these GPUs. Raises SetupError if it is known not to
    work; `setting` is where the image is named. `torch_cuda` is the CUDA of the torch that is installed if the image
    has none."""
    kinds = sorted({gpu for gpu in gpus if gpu is not None and GPUS[gpu].generation not in _OTHERS})
    if not kinds:
        return "not needed: no NVIDIA GPUs among the configured types"
    found = stated(text)
    cuda = found.cuda if "torch" in text.lower() else torch_cuda
    if wrong := [*_too_old(found.driver, cuda), *(each for kind in kinds for each in _unfit(kind, found.driver, cuda))]:
        raise SetupError(
            f"the image {text}: {'; '.join(wrong)}", hint=f"name another image in {setting}, or leave out these types"
        )
    if found.driver is None:
        return UNKNOWN
    return f"{found.driver}{'' if cuda is None else f' with CUDA {cuda}'}, fits {', '.join(kinds)}"


def unlisted(families: Sequence[str], instance_types: Iterable[str]) -> list[str]:
    """The types in none of the families that an image states (`P5` also covers p5en)."""
    named = tuple(each.lower() for each in families)
    return [each for each in instance_types if named and not each.lower().startswith(named)]


def cuda_of_torch() -> int | None:
    """The major version of CUDA that the torch of this environment was built for; None if unknown. Does not import
    torch, which takes seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    version = Path(found.origin).parent / "version.py"
    built_for = _BUILT_FOR.search(version.read_text()) if version.is_file() else None
    return int(built_for[1]) if built_for else None


def _too_old(driver: int | None, cuda: int | None) -> Iterator[str]:
    least = _LEAST_FOR_CUDA.get(cuda or 0, 0)
    if driver is not None and driver < least:
        yield f"its driver {driver} is too old for torch with CUDA {cuda}, which needs {least}"


def _unfit(gpu: str, driver: int | None, cuda: int | None) -> Iterator[str]:
    generation = GPUS[gpu].generation
    least, (last, last_cuda) = _LEAST_FOR.get(generation, 0), _LAST_FOR.get(generation, (999, 99))
    if driver is not None and driver < least:
        yield f"its driver {driver} does not support {gpu}, which needs {least}"
    if driver is not None and driver > last:
        yield f"its driver {driver} no longer supports {gpu}; the last one that does is {last}"
    if cuda is not None and cuda > last_cuda:
        yield f"torch with CUDA {cuda} cannot use {gpu}; the last CUDA that supports it is {last_cuda}"
