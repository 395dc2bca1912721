"""What is asked of ratios between GPUs at 16 bits, on models that a fit has not seen. Needs the shared data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks._published import read_published, source_of
from benchmarks._ratios import left_out
from orchestrator.perf import FITTED_NARROW, fit
from tests.shared_data import shared

HEADER = "gpu,gpu_count,nodes,model,params_b,task,precision,seq_len,global_batch,metric,value,source,note\n"


def test_ratios_of_models_that_were_left_out_are_near_and_their_intervals_are_honest() -> None:
    table = shared("jobs/llm_throughputs.csv")
    found = left_out(read_published(table), read_published(table, idle=False), lambda row: row.family, quick=True)
    for profiled, p90 in ((True, 0.35), (False, 0.41)):
        asked = [each for each in found if each.profiled == profiled]
        errors = [each.error for each in asked]
        assert len(asked) > 1000
        assert np.median(errors) <= 0.15
        assert np.quantile(errors, 0.9) <= p90
        assert 0.85 <= np.mean([each.inside for each in asked]) <= 0.95


def test_ratios_of_a_source_that_was_left_out_are_near_too() -> None:
    table = shared("jobs/llm_throughputs.csv")
    found = left_out(read_published(table), read_published(table, idle=False), source_of, quick=True)
    asked = [each for each in found if each.profiled]
    assert np.median([each.error for each in asked]) <= 0.14
    assert np.quantile([each.error for each in asked], 0.9) <= 0.42
    assert 0.85 <= np.mean([each.inside for each in asked]) <= 0.95


def test_the_shipped_model_is_that_of_the_table() -> None:
    rows = read_published(shared("jobs/llm_throughputs.csv"), idle=False)
    model = fit(rows, FITTED_NARROW.spreads)
    assert model.offsets == FITTED_NARROW.offsets
    assert model.mean == pytest.approx(FITTED_NARROW.mean, abs=1e-3)
    assert model.covariance == pytest.approx(FITTED_NARROW.covariance, abs=1e-3)


def rows(folder: Path, *lines: str) -> list[tuple[str, int, float]]:
    """GPU, count and rate, rounded, of what is read of these lines."""
    path = folder / "table.csv"
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return [(row.gpu, row.gpu_count, round(row.steps_per_s, 6)) for row in read_published(path)]


def test_a_job_is_what_differs_in_nothing_but_the_gpu(tmp_path: Path) -> None:
    a = "A100-80GB,8,1,m,7,pretrain,bf16,2048,8,tokens/s,100,s@1:x,form=SXM"
    assert rows(tmp_path, a, "H100,8,1,m,7,pretrain,bf16,2048,8,tokens/s,200,s@1:x,form=SXM") == [
        ("A100-80GB", 8, 100),
        ("H100", 8, 200),
    ]
    for other in (
        "H100,8,1,m,7,pretrain,fp8,2048,8,tokens/s,200,s@1:x,",
        "H100,8,1,m,7,pretrain,bf16,4096,8,tokens/s,200,s@1:x,",
        "H100,16,2,m,7,pretrain,bf16,2048,8,tokens/s,200,s@1:x,",
        "H100,8,1,m,7,pretrain,bf16,2048,8,tokens/s,200,s@1:y,",
        "H900,8,1,m,7,pretrain,bf16,2048,8,tokens/s,200,s@1:x,",
        "H100,8,1,m,7,pretrain,fp32,2048,8,tokens/s,200,s@1:x,",
    ):
        assert rows(tmp_path, a, other) == []


def test_cards_are_other_kinds_than_modules_where_the_table_of_hardware_says_so(tmp_path: Path) -> None:
    lines = [
        "H100,1,1,m,7,vision,fp16,,8,images/s,70,s@1:x,form=PCIe",
        "H100,1,1,m,7,vision,fp16,,8,images/s,100,s@1:x,form=SXM5",
        "A100-80GB,1,1,m,7,vision,fp16,,8,images/s,45,s@1:x,form=PCIe",
        "A100-80GB,1,1,m,7,vision,fp16,,8,images/s,50,s@1:x,form=SXM4",
    ]
    assert rows(tmp_path, *lines) == [("A100-80GB", 1, 50), ("H100", 1, 100), ("H100-PCIE", 1, 70)]


def test_mlperf_is_one_source_and_counts_per_gpu(tmp_path: Path) -> None:
    lines = [
        "L4,6,1,r,0.1,vision,fp16,,8,images/s,60,mlcommons/training_results_v3.0@1:a,form=PCIe; median per-GPU of 2",
        "H100,8,1,r,0.1,vision,fp16,,8,images/s,800,mlcommons/training_results_v4.0@2:b,form=SXM; median per-GPU of 9",
        "H100,64,8,r,0.1,vision,fp16,,8,images/s,1,mlcommons/training_results_v4.0@2:c,form=SXM",
    ]
    assert rows(tmp_path, *lines) == [("H100", 8, 800), ("L4", 8, 80)]
