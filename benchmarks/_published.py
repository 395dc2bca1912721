"""Published training rates of modern models (jobs/llm_throughputs.csv of the shared data) as rows of a ratio model.

A job is one model, task, precision, sequence length and number of GPUs from one source. Its rows differ in the GPU;
several rows of one GPU are replaced by their median. MLPerf's rates are per GPU, from the median single-node submission
of each round, and all rounds count as one source. Precision "not stated" is assumed to be 16 bits.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from orchestrator.perf import Row, Sort
from providers.hardware import GPUS, Precision, canonical_gpu

_PRECISIONS: dict[str, Precision] = {
    "fp16": "fp16",
    "bf16": "fp16",  # on these GPUs both have the same peak
    "not stated": "fp16",
    "fp8": "fp8",
    "mxfp8": "fp8",
}
_SORTS: dict[str, Sort] = {
    "vision": "convolutions",
    "recommendation": "lookups",
    "speech": "recurrences",
    "time series": "recurrences",
}
_MLPERF, _MLPERF_GPUS = "mlcommons", 8
_LEAST_UTILISATION = 0.02


class _Job(NamedTuple):
    source: str
    place: str
    model: str
    task: str
    precision: Precision
    metric: str
    seq_len: str
    gpu_count: int


def read_published(path: Path, *, idle: bool = True) -> list[Row]:
    """Rows of jobs that were measured on at least two kinds of GPU, at 16 or 8 bits. Raises OSError and KeyError.

    Without `idle`, models that use less than 2 % of an A100's peak are left out: their rate depends on the host.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    idlers = {line["model"] for line in lines if _utilisation(line) < _LEAST_UTILISATION}
    rates: dict[_Job, dict[tuple[str, int], list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        gpu = _gpu(line)
        precision = _PRECISIONS.get(line["precision"])
        if gpu is None or precision is None or (not idle and line["model"] in idlers):
            continue
        source, _, place = line["source"].partition(":")
        count, value = int(line["gpu_count"]), float(line["value"])
        job = _Job(
            source.partition("@")[0],
            place,
            line["model"],
            line["task"],
            precision,
            line["metric"],
            line["seq_len"],
            count,
        )
        if source.startswith(_MLPERF):
            if "median per-GPU" not in line["note"]:
                continue
            value, count = value / count * _MLPERF_GPUS, _MLPERF_GPUS
            job = job._replace(source=_MLPERF, place="", seq_len="", gpu_count=count)
        rates[job][gpu, count].append((_form(line), value))
    return [
        Row(
            " ".join(map(str, job)),
            job.model,
            gpu,
            count,
            _median(values),
            job.precision,
            _sort(job.model, job.task),
            per_step=False,
        )
        for job, of in sorted(rates.items())
        if len(of) > 1
        for (gpu, count), values in sorted(of.items())
    ]


def source_of(row: Row) -> str:
    """The publisher of a row returned by `read_published`."""
    return row.job.split()[0]


def _gpu(line: dict[str, str]) -> str | None:
    """The canonical name. H100 and H200 PCIe cards differ from SXM modules; A100 cards are not distinguished."""
    form = _form(line) if line["gpu"] in ("H100", "H200") else ""
    names = (f"{line['gpu']}-{form}", line["gpu"])
    return next((found for name in names if (found := canonical_gpu(name)) in GPUS), None)


def _form(line: dict[str, str]) -> str:
    form = line["note"].partition("form=")[2].upper()
    return next((each for each in ("PCIE", "NVL") if form.startswith(each) and not form.startswith("NVL7")), "")


def _median(values: list[tuple[str, float]]) -> float:
    """The rates of SXM modules if there are any, otherwise of PCIe cards."""
    modules = [value for form, value in values if not form]
    return math.exp(statistics.median(math.log(value) for value in modules or [value for _, value in values]))


def _sort(model: str, task: str) -> Sort:
    if "Diffusion" in model:
        return "convolutions"
    return "matrices" if "ViT" in model else _SORTS.get(task, "matrices")


def _utilisation(line: dict[str, str]) -> float:
    """The share of an A100's peak that a language model uses (6 FLOPs per parameter and token); infinite if unknown."""
    if not line["gpu"].startswith("A100") or line["metric"] != "tokens/s" or not line["params_b"]:
        return math.inf
    flops = 6 * float(line["params_b"]) * 1e9 * float(line["value"]) / int(line["gpu_count"])
    return flops / GPUS["A100-80GB"].fp16_flops
