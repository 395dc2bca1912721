"""Reads Gavel's rates of pairs of jobs that share a GPU (stanford-futuredata/gavel at c4fa400, MIT licence).

Only pairs on one GPU are read. The rows for 2, 4 and 8 GPUs are all (0, 0): those pairs were never measured.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.perf import InstanceKind
from orchestrator.perf.pairings import PairCell, Pairing
from orchestrator.services.speed.throughput_tables import read_table


@dataclass(frozen=True, slots=True)
class Colocated:
    """`cells`: each rate beside another job; `misfits`: (job, other, kind) that do not fit together; `alone`: steps/s
    by (job, kind)."""

    cells: Sequence[PairCell]
    misfits: Sequence[tuple[str, str, InstanceKind]]
    alone: Mapping[tuple[str, InstanceKind], float]
    family: Mapping[str, str]


def read_colocated(folder: Path) -> Colocated:
    """The table in a folder with throughputs_isolated.csv and throughputs_colocated.csv. A rate beside another job that
    exceeds the rate alone is noise and counts as equal to the rate alone."""
    rows = [row for row in read_table(folder / "throughputs_isolated.csv").rows if row.gpu_count == 1]
    alone = {(row.job, row.kind): row.steps_per_s for row in rows}
    family = {row.job: row.family for row in rows}
    cells, misfits = [], []
    with (folder / "throughputs_colocated.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            kind: InstanceKind = (row["worker_type"].upper(), int(row["scale_factor"]))
            pair = row["job_type_a"], row["job_type_b"]
            if kind[1] != 1 or any((job, kind) not in alone for job in pair):
                continue
            rates = float(row["steps_per_s_a"]), float(row["steps_per_s_b"])
            if not all(rates):
                misfits.append((*pair, kind))
                continue
            for (job, other), rate in list(zip((pair, pair[::-1]), rates, strict=True))[: len(set(pair))]:
                log_alone, log_other = math.log(alone[job, kind]), math.log(alone[other, kind])
                pairing = Pairing(job, family[job], other, family[other], kind, log_alone, log_other)
                cells.append(PairCell(pairing, min(math.log(rate), log_alone)))
    return Colocated(cells, misfits, alone, family)
