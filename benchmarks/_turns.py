"""The actual shares of jobs that take turns on owned machines, and their distance from the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.model import Run


def trained_s(runs: Iterable[Run], until_ms: int) -> float:
    """The seconds of market time for which a job has trained until then, according to its runs."""
    spans = [(run.training_from_ms, min(run.training_to_ms or until_ms, until_ms)) for run in runs]
    return sum(max(to_ms - from_ms, 0) / 1000 for from_ms, to_ms in spans if from_ms is not None)


def most_points(had: Mapping[str, float], planned: Mapping[str, float]) -> float:
    """The largest distance of a job's share from its plan, in percentage points of all jobs' time. By job: the time
    that it `had` and the `planned` time, each in any unit."""
    all_had, all_planned = sum(had.values()), sum(planned.values())
    return max(100 * abs(had[job] / all_had - planned.get(job, 0.0) / all_planned) for job in had)
