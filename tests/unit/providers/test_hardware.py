"""The table of GPUs, and that every cloud's name for one leads to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.hardware import GB, GPUS, canonical_gpu

REAL = sorted(name for name, gpu in GPUS.items() if not gpu.simulated)

NAMES = {
    # AWS DescribeInstanceTypes
    "Tesla V100": "V100",
    "A10G": "A10G",
    "T4g": "T4G",
    "M60": "M60",
    "Radeon Pro V520": None,
    # GCP accelerator types
    "nvidia-tesla-k80": "K80",
    "nvidia-tesla-p4": "P4",
    "nvidia-tesla-v100": "V100",
    "nvidia-tesla-a100": "A100-40GB",
    "nvidia-a100-80gb": "A100-80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100",
    "nvidia-h200-141gb": "H200",
    "nvidia-l4-vws": "L4",
    "nvidia-rtx-pro-6000": "RTX-PRO-6000",
    # Azure sizes and quota families
    "Standard_NC6": "K80",
    "Standard_NC24r_Promo": "K80",
    "Standard_NC12s_v2": "P100",
    "Standard_NC24rs_v3": "V100",
    "Standard_ND40rs_v2": "V100-32GB",
    "Standard_ND24rs": "P40",
    "Standard_NC64as_T4_v3": "T4",
    "Standard_NC24ads_A100_v4": "A100-80GB",
    "Standard_ND96asr_v4": "A100-40GB",
    "Standard_ND96amsr_A100_v4": "A100-80GB",
    "Standard_NV36ads_A10_v5": "A10",
    "Standard_NC40ads_H100_v5": "H100-NVL",
    "Standard_ND96isr_H100_v5": "H100",
    "Standard_ND96isr_H200_v5": "H200",
    "Standard_ND96isr_MI300X_v5": "MI300X",
    "Standard_ND128isr_NDR_GB200_v6": "GB200",
    "Standard_NC128ds_xl_RTXPRO6000BSE_v6": "RTX-PRO-6000",
    "standardNCSv3Family": "V100",
    "standardNDASv4_A100Family": "A100-40GB",
    "StandardNCADSH100v5Family": "H100-NVL",
    "Standard_D4s_v3": None,
    "Standard_NV8as_v4": None,
    # gpuhunt and SkyPilot
    "H100NVL": "H100-NVL",
    "H100-MEGA": "H100",
    "RTX6000Ada": "RTX-6000-ADA",
    "RTXA6000": "A6000",
    "RTX4090": "RTX-4090",
    # Prime Intellect
    "A100_80GB_PCIe": "A100-80GB",
    "A100_80GB_SXM4": "A100-80GB",
    "H100_80GB_PCIe": "H100-PCIE",
    "GH200_480GB": "GH200",
    "B200_180GB": "B200",
    # Lambda
    "gpu_1x_a6000": "A6000",
    "gpu_8x_v100": "V100",
    "gpu_8x_a100_80gb_sxm4": "A100-80GB",
    "gpu_8x_h100_sxm5": "H100",
    "gpu_1x_rtx6000": "RTX-6000",
    # RunPod
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA RTX 6000 Ada Generation": "RTX-6000-ADA",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "Tesla V100-SXM2-32GB": "V100-32GB",
    "NVIDIA B300 SXM6 AC": "B300",
    "AMD Instinct MI300X OAM": "MI300X",
    # Vast
    "RTX 6000Ada": "RTX-6000-ADA",
    "A100 SXM4": "A100-40GB",
    "H100 NVL": "H100-NVL",
    "RTX PRO 6000 WS": "RTX-PRO-6000",
    "8xH100": "H100",
    "8x RTX 4090": "RTX-4090",
    # Nobody's
    "8x": None,
    "H900": None,
    "": None,
    "NVIDIA": None,
    "80GB": None,
    "T4-80GB": None,
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_what_a_cloud_calls_it(name: str, expected: str | None) -> None:
    assert canonical_gpu(name) == expected


@given(
    name=st.sampled_from(sorted(GPUS)),
    vendor=st.sampled_from(["", "NVIDIA ", "nvidia-", "nvidia-tesla-", "NVIDIA GeForce ", "gpu_8x_"]),
    separator=st.sampled_from(["-", "_", " "]),
    case=st.sampled_from([str.upper, str.lower, str.title, str.swapcase]),
    padding=st.sampled_from(["", "  "]),
)
def test_case_separator_vendor_and_count_say_nothing(name, vendor, separator, case, padding) -> None:
    written = padding + case(vendor + name).replace("-", separator) + padding
    assert canonical_gpu(written) == name
    assert canonical_gpu(canonical_gpu(written)) == name


@given(name=st.sampled_from(REAL), unit=st.sampled_from(["GB", "gb", "GiB", "G"]), separator=st.sampled_from("-_ "))
def test_the_memory_that_it_has_says_nothing_and_that_of_another_is_an_error(name, unit, separator) -> None:
    memory = GPUS[name].memory_bytes // GB
    assert canonical_gpu(f"{name}{separator}{memory}{unit}") == name
    if not name.endswith("GB"):
        assert canonical_gpu(f"{name}{separator}{memory * 10}{unit}") is None


@given(name=st.text(max_size=30))
def test_any_text_gives_a_known_name_or_none_and_is_stable(name: str) -> None:
    found = canonical_gpu(name)
    assert found is None or (found in GPUS and canonical_gpu(found) == found)


@pytest.mark.parametrize("name", REAL)
def test_the_facts_of_a_gpu_are_complete_and_in_order(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.source
    assert gpu.throttle == 1.0
    assert 8 * GB <= gpu.memory_bytes <= 300 * GB
    assert 1e11 < gpu.bandwidth_bytes_per_s < 1e13
    assert 4e12 < gpu.fp32_flops <= gpu.peak_flops("tf32") <= gpu.peak_flops("fp16") <= gpu.peak_flops("fp8") < 1e16
    assert gpu.peak_flops("fp32") == gpu.fp32_flops
    assert gpu.peak_flops("bf16") in (gpu.fp16_flops, gpu.fp32_flops)
    assert 70 <= gpu.watts <= 1200
    assert 32e9 <= gpu.link_bytes_per_s <= 1.8e12
    assert (gpu.nvlink_bytes_per_s > 0) == gpu.interconnect.startswith(("NVLink", "Infinity"))


def test_formats_that_a_chip_lacks_fall_back_to_wider_ones() -> None:
    v100, a100, h100 = GPUS["V100"], GPUS["A100-40GB"], GPUS["H100"]
    assert (v100.peak_flops("tf32"), v100.peak_flops("bf16")) == (v100.fp32_flops, v100.fp32_flops)
    assert a100.peak_flops("fp8") == a100.peak_flops("bf16") == a100.fp16_flops
    assert h100.peak_flops("fp8") == 2 * h100.fp16_flops


def test_simulated_kinds_differ_by_their_throttle_alone() -> None:
    small, large = GPUS["SIM-S"], GPUS["SIM-L"]
    assert small.simulated
    assert large.fp32_flops / small.fp32_flops == large.throttle / small.throttle
