"""What images say of their driver, against the GPUs of the machines and the CUDA of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.errors import SetupError
from providers.hardware import GPUS
from providers.machine.drivers import UNKNOWN, Software, cuda_of_torch, fitness, stated, unlisted

PYTORCH = "pytorch-2-7-cu128-ubuntu-2204-nvidia-570"
BASE = "common-cu129-ubuntu-2204-nvidia-580"


@pytest.mark.parametrize(
    ("text", "driver", "cuda"),
    [
        (f"{PYTORCH}-v20260120", 570, 12),
        (BASE, 580, 12),
        ("common-cu113-debian-11-py310", None, 11),
        ("Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.7 (Ubuntu 22.04) 20260103", None, None),
        ("microsoft-dsvm:ubuntu-hpc:2404:latest", None, None),
        ("my-nvidia-5700-cu1", None, None),
    ],
)
def test_the_names_of_images_state_driver_and_cuda(text: str, driver: int | None, cuda: int | None) -> None:
    assert stated(text) == Software(driver, cuda)


@pytest.mark.parametrize(
    ("text", "gpus", "torch_cuda", "says"),
    [
        (PYTORCH, ["A100-80GB", "H100", None, "B200"], 13, "570 with CUDA 12, fits A100-80GB, B200, H100"),
        (PYTORCH, ["V100"], None, "570 with CUDA 12, fits V100"),
        (BASE, ["H100"], 13, "580 with CUDA 13, fits H100"),
        (BASE, ["V100"], None, "580, fits V100"),
        ("ubuntu-hpc", ["H100"], 13, UNKNOWN),
        ("pytorch-cu128-nvidia-535", [None, "MI300X"], 13, "not needed: no NVIDIA GPUs among the configured types"),
    ],
)
def test_an_image_that_fits_or_says_nothing_is_reported(
    text: str, gpus: list[str | None], torch_cuda: int | None, says: str
) -> None:
    assert fitness(text, gpus, "providers.gcp.image", torch_cuda) == says


@pytest.mark.parametrize(
    ("text", "gpus", "torch_cuda", "says"),
    [
        (
            "pytorch-2-4-cu124-nvidia-550",
            ["H100", "B200"],
            None,
            "its driver 550 does not support B200, which needs 570",
        ),
        ("common-cu128-nvidia-570", ["H100"], 13, "its driver 570 is too old for torch with CUDA 13, which needs 580"),
        (
            "common-cu129-nvidia-595",
            ["V100"],
            None,
            "its driver 595 no longer supports V100; the last one that does is 580",
        ),
        (
            "pytorch-2-9-cu130-nvidia-580",
            ["P100"],
            None,
            "torch with CUDA 13 cannot use P100; the last CUDA that supports it is 12",
        ),
        ("common-cu128", ["V100"], 13, "torch with CUDA 13 cannot use V100"),
    ],
)
def test_an_image_that_cannot_work_is_named_with_the_setting_to_change(
    text: str, gpus: list[str], torch_cuda: int | None, says: str
) -> None:
    with pytest.raises(SetupError, match=says) as raised:
        fitness(text, gpus, "providers.gcp.image", torch_cuda)
    assert "providers.gcp.image" in raised.value.hint


def test_every_nvidia_gpu_of_the_catalogue_fits_some_driver() -> None:
    for gpu, about in GPUS.items():
        if not about.simulated:
            fits = []
            for driver, cuda in ((470, 11), (570, 12), (580, 12), (580, 13), (595, 13)):
                try:
                    fits.append(fitness(f"pytorch-cu{cuda}0-nvidia-{driver}", [gpu], "image"))
                except SetupError:
                    continue
            assert fits, gpu


def test_the_families_that_an_image_names_cover_their_variants() -> None:
    types = ["p3.2xlarge", "p4d.24xlarge", "p5en.48xlarge", "g5.xlarge", "p6-b200.48xlarge"]
    assert unlisted(["G5", "P4", "P5en", "P6-B200"], types) == ["p3.2xlarge"]
    assert unlisted([], types) == []


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n", 13),
        ("cuda = '12.8'\n", 12),
        ("cuda: Optional[str] = None\ngit_version = 'a'\n", None),
        (None, None),
    ],
)
def test_the_cuda_of_torch_is_read_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, cuda: int | None
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    if text is not None:
        (package / "version.py").write_text(text)
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cuda_of_torch() == cuda
