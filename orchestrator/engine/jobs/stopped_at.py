"""Stopped at: the point from which a job continues if it had to stop without saving a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.model import Job, Run, latest_trained, trained
from orchestrator.store import Tx


def stopped_at(tx: Tx, job: Job) -> str:
    """The text that follows `paused`; unreadable runs do not count."""
    return where_stopped(tx.runs(job_id=job.id, unreadable=lambda _job_id, _error: None))


def where_stopped(runs: Iterable[Run]) -> str:
    """The same for the job with these runs."""
    began = trained(runs)
    latest = latest_trained(began)
    if latest is not None and has_stepped(began):
        return "without a checkpoint" if latest.saved_step == 0 else "at its last checkpoint"
    return "before its first step" if began else "before it started"


def has_stepped(runs: Iterable[Run]) -> bool:
    """Whether one of these runs has reported a step: such a program saves checkpoints. A program that never calls
    attach() reports no steps."""
    return any(run.last_step > 0 for run in runs)
