"""Of a project: the runs that are not booked to their end, and the cost of all its jobs so far."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator.engine.billing.machine_cost import unbooked_nano_usd
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.model import Run
from orchestrator.store import Tx


def unsettled_runs_of(tx: Tx, project: str) -> Sequence[Run]:
    """The runs of a project's jobs whose machines are not yet booked to their end."""
    runs = tx.unsettled_runs(left_out)  # an unreadable run is repaired first (engine.jobs.quarantine)
    of = {job.id: job.project for job in tx.outlines_of({run.job_id for run in runs})}
    return [run for run in runs if of.get(run.job_id) == project]


def spent_by_project_nano_usd(tx: Tx, project: str, now_ms: int) -> int:
    """The cost of a project's jobs; only the booked amounts if some price is not known for all of the time."""
    spent = tx.project_nano_usd(project)
    with suppress(ValueError):
        spent += unbooked_nano_usd(tx, unsettled_runs_of(tx, project), now_ms)
    return spent
