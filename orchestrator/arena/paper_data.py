"""Paper data: the input of the core paper: spot prices of 2020 and throughputs of 26 job types.

Reads `aws_spot_2020_dispa.parquet`, `azure_spot_2020_dispa.csv.gz`, `throughputs.csv.gz` and `paper_ratios.csv` from a
folder (re-encodings of stanford-futuredata/training_on_a_dime, MIT).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.traces import decoding, refused, require_file
from orchestrator.errors import MissingExtraError

Floats = NDArray[np.float64]
T = TypeVar("T")

DAY_MS = 86_400_000
COPY = "copy the paper's data again"
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
        require_file(folder / name, absent="name the folder with the paper's data")
    steps: dict[str, dict[str, float]] = {}
    ratios: dict[tuple[str, int, str, str], float] = {}
    for row in _csv(folder / "throughputs.csv.gz", ("source", "job_type", "worker_type", "steps_per_sec")):
        if row["source"] == "dispa_oracle":
            steps.setdefault(row["job_type"], {})[row["worker_type"].upper()] = row.value("steps_per_sec", float)
    for row in _csv(folder / "paper_ratios.csv", ("region", "days", "model", "policy", "ratio")):
        ratios[row["region"], row.value("days", int), row["model"], row["policy"]] = row.value("ratio", float)
    return PaperData(_aws(folder / "aws_spot_2020_dispa.parquet"), _azure(folder), steps, ratios)


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    cells: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.cells[name]

    def value(self, name: str, kind: Callable[[str], T]) -> T:
        """A cell as a number or a time. Raises SpecError with its line."""
        try:
            return kind(self.cells[name])
        except ValueError as error:
            raise refused(self.path, self.line, name, str(error), COPY) from None


def _csv(path: Path, columns: Sequence[str]) -> Iterator[_Row]:
    """The rows of a table, each with a value in these columns. Raises SpecError."""
    opened = gzip.open if path.suffix == ".gz" else open
    with decoding(path, "a readable table"), opened(path, "rt", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names, rows = reader.fieldnames or (), list(reader)
    for name in columns:
        if name not in names:
            raise refused(path, 1, name, "is not a column of this file", COPY)
    if not rows:
        raise refused(path, 0, "paper", "the table has no rows", COPY)
    for line, row in enumerate(rows, 2):
        for name in columns:
            if not row[name]:
                raise refused(path, line, name, "is empty", COPY)
        yield _Row(path, line, row)


def _aws(path: Path) -> tuple[Series, ...]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    names = ("region", "zone", "instance_type", "gpu", "gpus", "timestamp", "spot_price")
    with decoding(path, "a valid Parquet file"):
        table = pq.read_table(path, columns=list(names)).to_pydict()
    if len(table) < len(names) or not table["region"]:
        raise refused(path, 0, "paper", f"is empty, or lacks one of the columns {', '.join(names)}", COPY)
    rows: dict[tuple[str, str, str, str, int], list[tuple[int, float]]] = {}
    for region, zone, kind, gpu, gpus, at, usd in zip(
        *(table[name] for name in names),
        strict=True,
    ):
        rows.setdefault((region, zone, kind, gpu, int(gpus)), []).append((round(at.timestamp() * 1000), float(usd)))
    return tuple(_series("aws", *key, found) for key, found in sorted(rows.items()))


def _azure(folder: Path) -> tuple[Series, ...]:
    rows: dict[tuple[str, str, str, int], list[tuple[int, float]]] = {}
    columns = ("date", "region", "instance_type", "gpu", "gpus", "spot_price")
    for row in _csv(folder / "azure_spot_2020_dispa.csv.gz", columns):
        at_ms = round(row.value("date", datetime.fromisoformat).replace(tzinfo=UTC).timestamp() * 1000)
        key = (row["region"], row["instance_type"], row["gpu"], row.value("gpus", int))
        rows.setdefault(key, []).append((at_ms, row.value("spot_price", float)))
    return tuple(_series("azure", key[0], key[0], *key[1:], found) for key, found in sorted(rows.items()))


def _series(
    cloud: str, region: str, zone: str, kind: str, gpu: str, gpus: int, found: list[tuple[int, float]]
) -> Series:
    found.sort(key=lambda pair: pair[0])
    at_ms, usd = np.array([at for at, _ in found]), np.array([price for _, price in found])
    return Series(cloud, region, zone, kind, gpu, gpus, at_ms, usd)
