"""Quarantined jobs, and ending their work without reading possibly damaged rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from sqlalchemy import bindparam, case, select, update

from orchestrator.model import JobState, Step
from orchestrator.store.schema import MIGRATION_OPEN, QUARANTINED, job, migration, run
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A quarantined job, the error (`why`) and its market time in ms."""

    job_id: str
    name: str
    state: JobState
    why: str
    at_ms: int


_QUARANTINED = (
    select(job.c.id, job.c.name, job.c.state, job.c.quarantine, job.c.quarantined_at_ms)
    .where(QUARANTINED)
    .order_by(job.c.id)
)
_OPEN = update(migration).where(migration.c.job_id == bindparam("of_job"), MIGRATION_OPEN)
_RELEASED = _OPEN.where(migration.c.step == Step.RELEASE.value)
_LAUNCHED = (
    select(migration.c.id).where(migration.c.target_run_id == run.c.id, migration.c.attempt > 0).correlate(run).exists()
)
_END = (
    update(run)
    .where(run.c.job_id == bindparam("of_job"), run.c.end.is_(None))
    .values(
        end=case((run.c.training_from_ms.is_(None), "aborted"), else_=bindparam("end_of_trained")),
        training_to_ms=bindparam("at_ms"),
        # a machine may have been requested whose id is not known yet; the reaper finds it
        state=case((run.c.instance_id.is_(None) & _LAUNCHED, run.c.state), else_="ended"),
    )
)


class QuarantineRows(Transaction):
    """Reads quarantined jobs and ends their work."""

    def quarantined(self) -> list[Quarantined]:
        """All quarantined jobs, unreadable ones included: these count as not at rest, since time 0."""
        return [
            Quarantined(
                each.id,
                each.name if isinstance(each.name, str) else each.id,
                each.state if each.state in get_args(JobState) else "pausing",
                str(each.quarantine),
                each.quarantined_at_ms if isinstance(each.quarantined_at_ms, int) else 0,
            )
            for each in self._connection.execute(_QUARANTINED)
        ]

    def end_runs(self, job_id: str, end: str, at_ms: int, why: str) -> None:
        """Ends every run and aborts every migration of a job; runs that trained end as `end`."""
        of_job, step_at = {"of_job": job_id}, {"step_at_ms": at_ms}
        self._connection.execute(_RELEASED, {**of_job, **step_at, "step": Step.DONE.value})
        self._connection.execute(_OPEN, {**of_job, **step_at, "step": Step.ABORTED.value, "error": why})
        self._connection.execute(_END, {**of_job, "end_of_trained": end, "at_ms": at_ms})
