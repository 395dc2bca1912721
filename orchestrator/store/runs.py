"""Runs and migrations: what really happened to jobs, step by step. Must not know how a step is carried out."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from sqlalchemy import Row, select, update

from orchestrator.errors import NotFoundError
from orchestrator.model import Migration, Run, RunEnd, RunState, Step
from orchestrator.store.schema import migration, run
from orchestrator.store.transaction import Transaction, columns

_CLOSED = (Step.DONE.value, Step.ABORTED.value)


class RunFields(TypedDict, total=False):
    """What may change about a run."""

    instance_id: str | None
    state: RunState
    billed_from_ms: int | None
    billed_to_ms: int | None
    training_from_ms: int | None
    training_to_ms: int | None
    end: RunEnd | None
    start_step: int
    last_step: int
    last_loss: float | None
    step_wall_s: float | None
    repeated_steps: int
    useful_s: float
    checkpoint_s: float


class MigrationFields(TypedDict, total=False):
    """What may change about a migration, besides its step."""

    offer_id: str
    attempt: int
    token: str
    manifest: str | None
    error: str | None


class RunRows(Transaction):
    def add_run(self, new: Run) -> None:
        """Raises StoreError when the id, or the generation of this job, exists."""
        self._insert(run, **columns(new))

    def run(self, run_id: str) -> Run:
        """Raises NotFoundError."""
        row = self._connection.execute(select(run).where(run.c.id == run_id)).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no run {run_id}")
        return Run(**row._mapping)

    def runs(self, job_id: str | None = None, live: bool | None = None) -> list[Run]:
        """In the order of their creation; `live` picks those that have not ended, or those that have."""
        query = select(run).order_by(run.c.created_at_ms, run.c.generation, run.c.id)
        if job_id is not None:
            query = query.where(run.c.job_id == job_id)
        if live is not None:
            query = query.where(run.c.state != "ended" if live else run.c.state == "ended")
        return [Run(**row._mapping) for row in self._connection.execute(query)]

    def unsettled_runs(self) -> list[Run]:
        """Those that have not ended, and those whose rented machine is not booked to its end."""
        query = (
            select(run)
            .where((run.c.state != "ended") | (run.c.instance_id.is_not(None) & run.c.billed_to_ms.is_(None)))
            .order_by(run.c.created_at_ms, run.c.generation, run.c.id)
        )
        return [Run(**row._mapping) for row in self._connection.execute(query)]

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        """Raises NotFoundError."""
        if not self._connection.execute(update(run).where(run.c.id == run_id).values(**fields)).rowcount:
            raise NotFoundError(f"there is no run {run_id}")

    def add_migration(self, new: Migration) -> None:
        """Write the intent, before anything is done about it. Raises StoreError when the id or the token exists."""
        self._insert(migration, **columns(new))

    def migration(self, migration_id: str) -> Migration:
        """Raises NotFoundError."""
        row = self._connection.execute(select(migration).where(migration.c.id == migration_id)).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no migration {migration_id}")
        return _migration(row)

    def migrations(self, job_id: str | None = None, open: bool | None = None) -> list[Migration]:
        """In the order of their creation; `open` picks those that are under way, or those that are not."""
        query = select(migration).order_by(migration.c.created_at_ms, migration.c.generation, migration.c.id)
        if job_id is not None:
            query = query.where(migration.c.job_id == job_id)
        if open is not None:
            closed = migration.c.step.in_(_CLOSED)
            query = query.where(~closed if open else closed)
        return [_migration(row) for row in self._connection.execute(query)]

    def advance(self, migration_id: str, expected: Step, to: Step, **fields: Unpack[MigrationFields]) -> bool:
        """Go from step `expected` to `to`; False, and no change, when it is at another step. Raises NotFoundError."""
        done = self._connection.execute(
            update(migration)
            .where(migration.c.id == migration_id, migration.c.step == expected.value)
            .values(step=to.value, step_at_ms=self._clock.now_ms(), **fields)
        )
        if done.rowcount:
            return True
        self.migration(migration_id)
        return False


def _migration(row: Row[Any]) -> Migration:
    values = dict(row._mapping)
    return Migration(**{**values, "step": Step(values["step"])})
