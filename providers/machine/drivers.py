"""Whether what an image states of its NVIDIA driver fits the GPUs of the machines, and the CUDA of torch.

Google's images for training state the driver's branch and CUDA in their names
(pytorch-2-7-cu128-ubuntu-2204-nvidia-570), AWS's Deep Learning AMIs say in their description for which families of
machines they are. Others say nothing, and nothing can be told of them before a machine has started.

The least branch for a CUDA: docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html. GPUs and the
last CUDA and branch for them: "Deprecated Architectures" in the release notes of CUDA 12 and 13, and NVIDIA's list of
legacy GPUs (R470, R580). Ada and Hopper came with CUDA 11.8, whose branch is 520, Blackwell with CUDA 12.8 (570).
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
"""What doctor calls this check."""
UNKNOWN = "the image does not state its driver; a machine on which the GPUs do not work says so at its start"
_DRIVER = re.compile(r"nvidia[ _-](\d{3})\b")
_CUDA = re.compile(r"\bcu(\d{2})\d\b")
_BUILT_FOR = re.compile(r"^cuda\b[^=]*= '(\d+)\.", re.MULTILINE)
_LEAST_FOR_CUDA = {11: 450, 12: 525, 13: 580}
_LEAST_FOR = {"Ada": 520, "Hopper": 520, "Blackwell": 570, "GB202": 570}
_LAST_FOR = {"Kepler": (470, 11), **dict.fromkeys(("Maxwell", "Pascal", "Volta"), (580, 12))}
"""Generation of GPUs -> the last branch of the driver and the last CUDA that know it."""
_OTHERS = ("CDNA3",)
"""Generations that need no driver of NVIDIA's."""


@dataclass(frozen=True, slots=True)
class Software:
    """The branch of an image's driver and the major version of its CUDA; None: not stated."""

    driver: int | None
    cuda: int | None


def stated(text: str) -> Software:
    """What names and descriptions of an image say."""
    driver, cuda = _DRIVER.search(text.lower()), _CUDA.search(text.lower())
    return Software(int(driver[1]) if driver else None, int(cuda[1]) if cuda else None)


def fitness(text: str, gpus: Iterable[str | None], setting: str, torch_cuda: int | None = None) -> str:
    """What to say of an image (`text`: its names) on machines with these GPUs, if nothing is known to be wrong with it.
    Raises SetupError otherwise; `setting` is where the image is named. `torch_cuda` is the CUDA of the torch that is
    installed where the image has none."""
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
    """The types that belong to none of the families for which an image says it is made (`P5`, also for p5en)."""
    named = tuple(each.lower() for each in families)
    return [each for each in instance_types if named and not each.lower().startswith(named)]


def cuda_of_torch() -> int | None:
    """The major version of CUDA for which the torch of this environment is built; None if it is not known. Imports no
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
        yield f"its driver {driver} does not know {gpu}, which needs {least}"
    if driver is not None and driver > last:
        yield f"its driver {driver} no longer knows {gpu}, for which {last} is the last"
    if cuda is not None and cuda > last_cuda:
        yield f"torch with CUDA {cuda} cannot use {gpu}, for which CUDA {last_cuda} is the last"
