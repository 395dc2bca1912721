"""Traces of jobs: when each arrived, how much it has to do, by when, and how fast it runs on each kind of GPU.

A trace is a CSV file with a row for each job. Columns: `arrival_s`, `job_type`, `total_steps`; optional `job_id`,
`scale_factor` (GPUs, 1), `priority_weight` (1), and a deadline: `deadline_s` from the arrival, or `slo_multiple` of
`v100_duration_s` (empty: none). A table of throughputs is a CSV file with `job_type`, `scale_factor` and a column of
steps/s of the whole job for each kind of GPU; 0: it does not run there. Other columns are ignored.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.arena.rounds import Arrivals
from orchestrator.arena.traces import refused
from orchestrator.errors import did_you_mean
from orchestrator.policy.groups.problem import Floats

MOST_S = 10 * 365 * 86_400.0
"""Longer traces take too long to simulate."""
MOST_GPUS = 10_000


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Jobs in order of arrival; `deadline_s` (jobs,) on the clock of the trace, infinite for none."""

    name: str
    jobs: Arrivals
    deadline_s: Floats


def read_jobs(trace: Path, throughputs: Path, kinds: Sequence[str]) -> JobTrace:
    """The jobs of a trace with their rates on these `kinds` of GPU. Raises SpecError with file, line and field."""
    rates = _rates(throughputs, kinds)
    rows: list[tuple[float, Sequence[float], float, float, float, float]] = []
    for line, row in _rows(trace, ("arrival_s", "job_type", "total_steps")):
        gpus = _number(trace, line, row, "scale_factor", least=1, default=1.0)
        if gpus != int(gpus) or gpus > MOST_GPUS:
            raise refused(trace, line, "scale_factor", f"{row['scale_factor']!r} is not a number of GPUs")
        rate = rates.get((row["job_type"], int(gpus)))
        if rate is None:
            message = f"{throughputs} has no row of job_type {row['job_type']!r} with scale_factor {gpus:g}"
            near = did_you_mean(row["job_type"], {each for each, _ in rates})
            raise refused(trace, line, "job_type", message, near or "measure it, or leave the job out")
        if not max(rate) > 0:
            message = f"{row['job_type']!r} with scale_factor {gpus:g} runs on none of {', '.join(kinds)}"
            raise refused(trace, line, "job_type", message, "add a kind of GPU to --cluster")
        at_s = _number(trace, line, row, "arrival_s", least=0)
        steps = _number(trace, line, row, "total_steps", least=1)
        weight = _number(trace, line, row, "priority_weight", least=1e-6, default=1.0)
        if steps / max(rate) > MOST_S or at_s > MOST_S:
            message = "it would end more than ten years after the trace begins"
            raise refused(trace, line, "total_steps", message, "check arrival_s, total_steps and the throughputs")
        rows.append((at_s, rate, gpus, steps, weight, at_s + _allowed_s(trace, line, row)))
    if not rows:
        raise refused(trace, 0, "", "the trace has no jobs")
    rows.sort(key=lambda each: each[0])
    at_s_, rate_, gpus_, steps_, weight_, deadline_s = (np.array(each, dtype=float) for each in zip(*rows, strict=True))
    return JobTrace(trace.stem, Arrivals(at_s_, rate_, gpus_, steps_, weight_), deadline_s)


def _allowed_s(path: Path, line: int, row: Mapping[str, str]) -> float:
    """How long after its arrival a job is late; infinite without a deadline."""
    if row.get("deadline_s"):
        return _number(path, line, row, "deadline_s", least=1e-3)
    if not row.get("slo_multiple"):
        return math.inf
    return _number(path, line, row, "slo_multiple", least=1e-3) * _number(path, line, row, "v100_duration_s", least=0)


def _rates(path: Path, kinds: Sequence[str]) -> dict[tuple[str, int], tuple[float, ...]]:
    """By job type and number of GPUs."""
    found: dict[tuple[str, int], tuple[float, ...]] = {}
    for line, row in _rows(path, ("job_type", "scale_factor", *kinds)):
        gpus = _number(path, line, row, "scale_factor", least=1)
        if gpus != int(gpus):
            raise refused(path, line, "scale_factor", f"{row['scale_factor']!r} is not a number of GPUs")
        if (row["job_type"], int(gpus)) in found:
            raise refused(path, line, "job_type", f"a second row of {row['job_type']!r} with scale_factor {gpus:g}")
        found[row["job_type"], int(gpus)] = tuple(_number(path, line, row, kind, least=0) for kind in kinds)
    return found


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line, row) of a CSV file with these columns."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restval="")
            columns = reader.fieldnames or ()
            for name in needed:
                if name not in columns:
                    near = did_you_mean(name, columns) or f"it has {', '.join(columns) or 'no columns'}"
                    raise refused(path, 1, name, "the column is missing", near)
            for row in reader:
                if None in row:
                    raise refused(path, reader.line_num, "", f"there are more values than the {len(columns)} columns")
                yield reader.line_num, row
    except FileNotFoundError as error:
        hint = "name a table with --throughputs (docs/backtest.md)" if needed[0] == "job_type" else ""
        raise refused(path, 0, "", "the file does not exist", hint) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise refused(path, 0, "", f"it cannot be read as CSV: {error}") from error


def _number(
    path: Path, line: int, row: Mapping[str, str], field: str, *, least: float, default: float | None = None
) -> float:
    text = row.get(field, "").strip()
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        expected = "a number" if least <= 0 else f"a number of at least {least:g}"
        raise refused(path, line, field, f"{text!r} is not {expected}" if text else f"{field} is missing")
    return value
