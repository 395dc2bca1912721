"""Reads throughput tables from files: Tradewind's format and Gavel's two.

    ours    CSV with job, gpu, gpu_count, steps_per_s, and optionally family (of models; default: the job)
    Gavel   CSV with job_type, scale_factor and one column per GPU (k80, p100, v100, ...); 0 or empty: does not fit
    Gavel   JSON {gpu: {"('job type', scale factor)": {"null": steps/s, other job types: shared rates}}}

Rates are steps per second of the whole job on one machine with that many GPUs. Gavel's columns and types that end in
`_unconsolidated` (GPUs spread over servers) and its rates of jobs that share a GPU are left out.
Source of Gavel's formats: github.com/stanford-futuredata/gavel (MIT), Narayanan et al. 2020.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import Problem, SpecError, UsageError, did_you_mean
from orchestrator.perf import Row
from providers.hardware import GPUS, canonical_gpu
from providers.tables import MAX_NAME_CHARACTERS, checked_text, shown

OURS = ("job", "gpu", "gpu_count", "steps_per_s")
GAVEL = ("job_type", "scale_factor")
MAX_CHARACTERS = 16 << 20
MAX_PROBLEMS = 100  # a file with more problems is not a throughput table
MAX_GPUS = 1_000_000
LEAST_RATE, MOST_RATE = 1e-9, 1e9  # steps per second
_SPREAD_OUT = "_unconsolidated"
_JOB_TYPE = re.compile(r"\('(?P<job>.*)', (?P<count>\d+)\)")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A job that does not fit on this many of these GPUs."""

    job: str
    gpu: str
    gpu_count: int


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """The rates of a file, in its order, and the combinations that do not fit."""

    rows: tuple[Row, ...]
    misfits: tuple[Misfit, ...]


def read_table(path: Path) -> ThroughputTable:
    """Reads a table; the format follows from the file name (.json) or the header.

    Raises UsageError if the file cannot be read, SpecError with the file, line, field and remedy of every invalid row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", hint="give a CSV or JSON file of throughputs") from None
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"{path} has more than {MAX_CHARACTERS >> 20} MiB of text", hint="give a CSV or JSON file of throughputs"
        )
    reader = _Reader(str(path))
    if path.suffix.lower() == ".json":
        reader.gavel_json(text)
    else:
        reader.csv(text)
    if not reader.problems and not reader.rows:
        reader.problem(1, 1, "", "the table has no rows", "add rows, or remove the table")
    if reader.problems:
        raise SpecError(reader.problems)
    return ThroughputTable(tuple(reader.rows), tuple(reader.misfits))


@dataclass
class _Reader:
    path: str
    rows: list[Row] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, line: int, column: int, name: str, message: str, hint: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self.path, line, column, visible_name(name), message, hint))

    def csv(self, text: str) -> None:
        lines = csv.reader(io.StringIO(text, newline=""))
        try:
            self._csv(lines)
        except csv.Error as error:
            self.problem(lines.line_num, 1, "", f"is not valid CSV: {error}", "save it as CSV in UTF-8")

    def _csv(self, lines: Any) -> None:
        header = [name.strip() for name in next(lines, [])]
        ours = all(name in header for name in OURS)
        if not ours and not all(name in header for name in GAVEL):
            missing = [name for name in OURS if name not in header]
            self.problem(
                1, 1, "", f"the header lacks {', '.join(missing)}", f"give {', '.join(OURS)}, or Gavel's table"
            )
            return
        gpus = {name: self._gpu(name, 1, at + 1, name) for at, name in enumerate(header) if not ours and _counts(name)}
        for line in lines:
            if not line:
                continue
            number = lines.line_num
            if len(line) != len(header):
                self.problem(number, 1, "", f"{len(line)} fields, the header has {len(header)}", "quote commas")
                continue
            values = dict(zip(header, (value.strip() for value in line), strict=True))
            at = {name: index + 1 for index, name in enumerate(header)}
            if ours:
                gpu = self._gpu(values["gpu"], number, at["gpu"], "gpu")
                count = self._count(values["gpu_count"], number, at["gpu_count"], "gpu_count")
                rate = self._rate(values["steps_per_s"], number, at["steps_per_s"], "steps_per_s", gavel=False)
                job = self._job(values["job"], number, at["job"], "job")
                named = values.get("family")
                family = self._job(named, number, at["family"], "family") if named else job
                if gpu is not None and count is not None and rate and job and family:
                    self.rows.append(Row(job, family, gpu, count, rate))
                continue
            count = self._count(values["scale_factor"], number, at["scale_factor"], "scale_factor")
            job = self._job(values["job_type"], number, at["job_type"], "job_type")
            for name, gpu in gpus.items():
                rate = self._rate(values[name], number, at[name], name, gavel=True) if gpu is not None else None
                self._gavel(job, gpu, count, rate)

    def gavel_json(self, text: str) -> None:
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            self.problem(
                error.lineno, error.colno, "", f"is not valid JSON: {error.msg}", "give Gavel's throughputs file"
            )
            return
        except (RecursionError, ValueError) as error:  # nested too deeply, or a number with thousands of digits
            self.problem(1, 1, "", f"is not a valid table: {error}", "give Gavel's throughputs file")
            return
        if not isinstance(document, dict):
            self.problem(1, 1, "", "is not an object of GPU types", "give Gavel's throughputs file")
            return
        for worker, jobs in document.items():
            if worker.endswith(_SPREAD_OUT):
                continue
            gpu = self._gpu(worker, 0, 0, worker)
            for name, rates in (jobs if isinstance(jobs, dict) else {}).items():
                found = _JOB_TYPE.fullmatch(name)
                where = f"{worker}.{name}"
                if found is None or not isinstance(rates, dict) or "null" not in rates:
                    self.problem(0, 0, where, "has no rate of its own", 'give "(\'job\', 1)": {"null": steps/s}')
                    continue
                rate = self._rate(rates["null"], 0, 0, where, gavel=True)
                count = self._count(found["count"], 0, 0, where)
                self._gavel(self._job(found["job"], 0, 0, where), gpu, count, rate)

    def _gavel(self, job: str | None, gpu: str | None, count: int | None, rate: float | None) -> None:
        if job is None or gpu is None or count is None or rate is None:
            return
        if rate == 0:
            self.misfits.append(Misfit(job, gpu, count))
        else:
            self.rows.append(Row(job, job.partition(" (batch size ")[0], gpu, count, rate))

    def _job(self, name: str, line: int, column: int, where: str) -> str | None:
        try:
            if checked_text(name):
                return name
            self.problem(line, column, where, "is empty", "name the model and its settings")
        except ValueError as error:
            self.problem(line, column, where, str(error), "name the model and its settings in printable characters")
        return None

    def _gpu(self, name: str, line: int, column: int, where: str) -> str | None:
        known = canonical_gpu(name)
        if known is None:
            hint = did_you_mean(name, GPUS) or f"known: {', '.join(sorted(GPUS))}"
            self.problem(line, column, where, f"{visible_name(name) or '(empty)'} is not a known GPU", hint)
        return known

    def _count(self, value: str, line: int, column: int, where: str) -> int | None:
        if value.isdecimal() and len(value) <= len(str(MAX_GPUS)) and 0 < int(value) <= MAX_GPUS:
            return int(value)
        self.problem(
            line, column, where, f"{visible_name(value) or '(empty)'} is not a number of GPUs", "give 1, 2, 4, ..."
        )
        return None

    def _rate(self, value: Any, line: int, column: int, where: str, *, gavel: bool) -> float | None:
        """The rate in steps per second; None after a problem; 0.0 (Gavel only) if the job does not fit."""
        if gavel and value in ("", None):
            return 0.0
        try:
            rate = float(value)
        except (TypeError, ValueError):
            rate = math.nan
        if LEAST_RATE <= rate <= MOST_RATE:
            return rate
        if rate == 0 and gavel:
            return 0.0
        hint = "omit the row if the job does not fit" if rate == 0 else "give steps per second above 0"
        said = visible_name(str(value)) or "(empty)"
        self.problem(line, column, where, f"{said} is not a rate", hint)
        return None


def visible_name(text: str) -> str:
    """`text` as quoted in a message: unchanged if it is printable, else shortened and escaped."""
    return text if text.isprintable() and len(text) <= MAX_NAME_CHARACTERS else shown(text)


def _counts(name: str) -> bool:
    return name not in GAVEL and not name.endswith(_SPREAD_OUT)
