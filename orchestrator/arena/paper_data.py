"""Paper data: the input of the core paper: spot prices of 2020 and throughputs of 26 job types.

Reads `aws_spot_2020_dispa.parquet`, `azure_spot_2020_dispa.csv.gz`, `throughputs.csv.gz` and `paper_ratios.csv` from a
folder (re-encodings of stanford-futuredata/training_on_a_dime, MIT).
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.traces import refused
from orchestrator.errors import MissingExtraError

Floats = NDArray[np.float64]

DAY_MS = 86_400_000
# The Azure log has a typo: NC24s v2 at 9.936, with 1.987 on the days around it. It is never the cheapest.


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Spot prices of one instance type in one zone, in US$ per hour of the whole machine, in order of time."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    gpu: str
    gpus: int
    at_ms: NDArray[np.int64]
    usd: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PaperData:
    """The paper's input: `steps_per_s[model][gpu]`, and `ratios[region, days, model, policy]` as published."""

    aws: tuple[Series, ...]
    azure: tuple[Series, ...]
    steps_per_s: dict[str, dict[str, float]]
    ratios: dict[tuple[str, int, str, str], float]


def read(folder: Path) -> PaperData:
    """Read the paper's data. Raises SpecError for a missing file, MissingExtraError without pyarrow."""
    for name in (
        "aws_spot_2020_dispa.parquet",
        "azure_spot_2020_dispa.csv.gz",
        "throughputs.csv.gz",
        "paper_ratios.csv",
    ):
        if not (folder / name).exists():
            raise refused(folder / name, 0, "paper", "the file does not exist", "name the folder with the paper's data")
    steps: dict[str, dict[str, float]] = {}
    for row in _csv(folder / "throughputs.csv.gz"):
        if row["source"] == "dispa_oracle":
            steps.setdefault(row["job_type"], {})[row["worker_type"].upper()] = float(row["steps_per_sec"])
    ratios = {
        (row["region"], int(row["days"]), row["model"], row["policy"]): float(row["ratio"])
        for row in _csv(folder / "paper_ratios.csv")
    }
    return PaperData(_aws(folder / "aws_spot_2020_dispa.parquet"), _azure(folder), steps, ratios)


def _csv(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", newline="") as file:
            return list(csv.DictReader(file))
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _aws(path: Path) -> tuple[Series, ...]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    table = pq.read_table(path).to_pydict()
    rows: dict[tuple[str, str, str, str, int], list[tuple[int, float]]] = {}
    for region, zone, kind, gpu, gpus, at, usd in zip(
        *(table[key] for key in ("region", "zone", "instance_type", "gpu", "gpus", "timestamp", "spot_price")),
        strict=True,
    ):
        rows.setdefault((region, zone, kind, gpu, int(gpus)), []).append((round(at.timestamp() * 1000), float(usd)))
    return tuple(_series("aws", *key, found) for key, found in sorted(rows.items()))


def _azure(folder: Path) -> tuple[Series, ...]:
    rows: dict[tuple[str, str, str, int], list[tuple[int, float]]] = {}
    for row in _csv(folder / "azure_spot_2020_dispa.csv.gz"):
        at_ms = round(datetime.fromisoformat(row["date"]).replace(tzinfo=UTC).timestamp() * 1000)
        key = (row["region"], row["instance_type"], row["gpu"], int(row["gpus"]))
        rows.setdefault(key, []).append((at_ms, float(row["spot_price"])))
    return tuple(_series("azure", key[0], key[0], *key[1:], found) for key, found in sorted(rows.items()))


def _series(
    cloud: str, region: str, zone: str, kind: str, gpu: str, gpus: int, found: list[tuple[int, float]]
) -> Series:
    found.sort(key=lambda pair: pair[0])
    at_ms, usd = np.array([at for at, _ in found]), np.array([price for _, price in found])
    return Series(cloud, region, zone, kind, gpu, gpus, at_ms, usd)
