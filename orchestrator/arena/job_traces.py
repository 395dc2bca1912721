"""Traces of jobs: each job's arrival, work, deadline, and speed on each kind of GPU.

A trace is a CSV file with a row for each job. Columns: `arrival_s`, `job_type`, `total_steps`; optional `job_id`,
`scale_factor` (GPUs, 1), `priority_weight` (1), and a deadline: `deadline_s` from the arrival, or `slo_multiple` of
`v100_duration_s` (empty: none). A table of throughputs is a CSV file with `job_type`, `scale_factor` and a column of
steps/s of the whole job for each kind of GPU; 0: it does not run there. Other columns are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.arena.csv_rows import Mistakes, Row, rows
from orchestrator.arena.rounds import Arrivals
from orchestrator.errors import SpecError, did_you_mean
from orchestrator.policy.groups.problem import Floats

MOST_S = 10 * 365 * 86_400.0
"""Longer traces take too long to simulate, and so do jobs that would take longer on one of their kinds of GPU: a policy
may use that kind, and no round ends in the middle of a step."""
MOST_GPUS = 10_000
MOST_STEPS_PER_S = 1e9
MOST_WEIGHT = 1e6
Rates = dict[tuple[str, int], tuple[float, ...]]
"""Steps/s on each kind of GPU, by job type and number of GPUs."""


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Jobs in order of arrival; `deadline_s` (jobs,) on the clock of the trace, infinite for none."""

    name: str
    jobs: Arrivals
    deadline_s: Floats


def read_jobs(trace: Path, throughputs: Path, kinds: Sequence[str], *, room: Sequence[int] | None = None) -> JobTrace:
    """The jobs of a trace, with their rates on each of the `kinds` of GPU. `room`: the most GPUs of each kind that one
    job can have (None: no limit). Raises SpecError with all mistakes of both files, each with line and field."""
    own, others = Mistakes(trace), Mistakes(throughputs)
    absent = "give the path of a trace of jobs, such as examples/job-traces/jobs.csv (docs/backtest.md)"
    listed = list(rows(own, ("arrival_s", "job_type", "total_steps"), absent=absent))
    if not listed:  # the required throughputs are unknown
        if not own:
            own.note(0, 0, "", "the trace has no jobs", "add a row for each job")
        raise SpecError(own.problems())
    rates = _rates(others, kinds)
    table = _Table(throughputs, rates, kinds, room) if not others else None
    found = [job for row in listed if (job := _job(row, table)) is not None]
    if own or others:
        raise SpecError([*own.problems(), *others.problems()])
    found.sort(key=lambda each: each.at_s)
    jobs = Arrivals(
        np.array([each.at_s for each in found]),
        np.array([each.rate for each in found], dtype=float),
        np.array([each.gpus for each in found]),
        np.array([each.steps for each in found]),
        np.array([each.weight for each in found]),
    )
    return JobTrace(trace.stem, jobs, np.array([each.deadline_s for each in found]))


@dataclass(frozen=True, slots=True)
class _Job:
    at_s: float
    rate: Sequence[float]
    gpus: float
    steps: float
    weight: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of throughputs and the cluster that it is used for."""

    path: Path
    rates: Rates
    kinds: Sequence[str]
    room: Sequence[int] | None

    def rate(self, row: Row, gpus: int) -> Sequence[float] | None:
        """A job's rate on each kind of GPU; None if it runs on none, which is recorded as a mistake."""
        job_type = row.cells["job_type"]
        rate = self.rates.get((job_type, gpus))
        if rate is None:
            message = f"{self.path} has no row of job_type {job_type!r} with scale_factor {gpus}"
            row.wrong("job_type", message, self._remedy(job_type))
            return None
        if not max(rate) > 0:
            message = f"{job_type!r} with scale_factor {gpus} does not run on any of {', '.join(self.kinds)}"
            row.wrong("job_type", message, "add a kind of GPU to --cluster")
            return None
        if self.room is not None:
            largest = max(each for each, speed in zip(self.room, rate, strict=True) if speed > 0)
            if gpus > largest:
                job = row.cells.get("job_id", "").strip() or "the job"
                message = f"{job} takes {gpus} GPUs of one kind, but the cluster has only {largest} for it"
                row.wrong("scale_factor", message, "give --cluster more of one kind, or leave the job out")
                return None
        return rate

    def _remedy(self, job_type: str) -> str:
        others = sorted(gpus for name, gpus in self.rates if name == job_type)
        if others:
            listed = ", ".join(map(str, others))
            return f"it has this job_type with scale_factor {listed}; add a row, or change the job"
        near = did_you_mean(job_type, {name for name, _ in self.rates})
        return near or "add a row with measured speeds, or leave the job out"


def _job(row: Row, table: _Table | None) -> _Job | None:
    """The job of a row; None if the row has mistakes, which are recorded. Without a table, only the row is checked."""
    gpus = row.gpus("scale_factor", MOST_GPUS, default=1.0)
    at_s = row.number("arrival_s", "the seconds from the start of the trace, 0 or more", least=0)
    steps = row.number("total_steps", "the number of the job's steps, 1 or more", least=1)
    weight = row.number("priority_weight", "the job's weight, such as 1", least=1e-6, most=MOST_WEIGHT, default=1.0)
    allowed_s = _allowed_s(row)
    rate = None if table is None or math.isnan(gpus) else table.rate(row, int(gpus))
    if rate is None or any(map(math.isnan, (at_s, steps, weight, allowed_s))):
        return None
    if steps / max(rate) > MOST_S or at_s > MOST_S:
        message = "it would end more than ten years after the trace begins"
        row.wrong("total_steps", message, "check arrival_s, total_steps and the throughputs")
        return None
    assert table is not None
    slowest, kind = min((speed, kind) for speed, kind in zip(rate, table.kinds, strict=True) if speed > 0)
    if steps / slowest > MOST_S:
        message = f"it would take more than ten years on {kind}, at {slowest:g} steps/s"
        row.wrong("total_steps", message, f"correct it, or the speed in {table.path}: 0 if the job does not run there")
        return None
    return _Job(at_s, rate, gpus, steps, weight, at_s + allowed_s)


def _allowed_s(row: Row) -> float:
    """The time after its arrival from which a job is late; infinite without a deadline."""
    if row.cells.get("deadline_s"):
        return row.number("deadline_s", "the seconds from the arrival to the deadline, or nothing", least=1e-3)
    if not row.cells.get("slo_multiple"):
        return math.inf
    multiple = row.number("slo_multiple", "the multiple of v100_duration_s that the job may take", least=1e-3)
    return multiple * row.number("v100_duration_s", "the seconds that the job takes on a V100", least=0)


def _rates(mistakes: Mistakes, kinds: Sequence[str]) -> Rates:
    found: Rates = {}
    absent = "name a table with --throughputs (docs/backtest.md)"
    for row in rows(mistakes, ("job_type", "scale_factor", *kinds), absent=absent):
        gpus = row.gpus("scale_factor", MOST_GPUS)
        what = "steps/s, or 0 if the job does not run there"
        speeds = tuple(row.number(kind, what, least=0, most=MOST_STEPS_PER_S) for kind in kinds)
        for kind, speed in zip(kinds, speeds, strict=True):
            if 0 < speed < 1 / MOST_S:
                message = f"{row.cells[kind]!r} steps/s is less than a step in ten years"
                row.wrong(kind, message, f"write {what}")
        if math.isnan(gpus):
            continue
        key = row.cells["job_type"], int(gpus)
        if key in found:
            row.wrong("job_type", f"a second row of {key[0]!r} with scale_factor {key[1]}", "leave one of them out")
        found[key] = speeds
    return found
