"""Runs and migrations: what really happened to jobs, step by step."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import fields as fields_of
from functools import cache
from typing import Any, TypedDict, TypeVar, Unpack

from sqlalchemy import Row, Select, bindparam, func, select, update

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.model import Migration, Run, RunEnd, RunState, Step
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import Unreadable, record, records
from orchestrator.store.schema import MIGRATION_OPEN, UNSETTLED, migration, run
from orchestrator.store.transaction import Transaction, columns
from providers.offer import OfferId

PLACE_PARTS = 3
LOOKED_AT = 2000  # a provider none of whose machines is among the newest so many has no recent ones
LARGEST_GENERATION = 2**31 - 1
_Placed = TypeVar("_Placed", Run, Migration)

_RUN = select(*(run.c[field.name] for field in fields_of(Run)))
_RUNS = _RUN.order_by(run.c.created_at_ms, run.c.generation, run.c.id)
_ONE_RUN = _RUN.where(run.c.id == bindparam("run_id"))
_RUNS_OF = _RUNS.where(run.c.job_id.in_(bindparam("job_ids", expanding=True)))
_UNSETTLED = _RUNS.where(UNSETTLED)
_TOO_OLD = select(run.c.id).order_by(run.c.id.desc()).offset(LOOKED_AT).limit(1).scalar_subquery()
_STARTED = (
    _RUN.where(run.c.id > func.coalesce(_TOO_OLD, ""), run.c.offer_id.like(bindparam("of_provider")))
    .where(run.c.billed_from_ms.is_not(None), run.c.training_from_ms.is_not(None))
    .order_by(run.c.id.desc())
    .limit(bindparam("limit"))
)
_UPDATE_RUN = update(run).where(run.c.id == bindparam("run_id"))

_MIGRATION = select(*(migration.c[field.name] for field in fields_of(Migration)))
_MIGRATIONS = _MIGRATION.order_by(migration.c.created_at_ms, migration.c.generation, migration.c.id)
_MIGRATIONS_OF = _MIGRATIONS.where(migration.c.job_id.in_(bindparam("job_ids", expanding=True)))
_ONE_MIGRATION = _MIGRATION.where(migration.c.id == bindparam("migration_id"))
_OF_TOKEN = select(migration.c.target_run_id).where(migration.c.token == bindparam("token"))
_ADVANCE = update(migration).where(
    migration.c.id == bindparam("migration_id"), migration.c.step == bindparam("expected")
)


@cache
def _runs(of_job: bool, live: bool | None, unsettled: bool) -> Select[Any]:
    query = _UNSETTLED if unsettled else _RUNS
    if of_job:
        query = query.where(run.c.job_id == bindparam("job_id"))
    if live is not None:
        query = query.where(run.c.state != "ended" if live else run.c.state == "ended")
    return query.where(UNSETTLED) if live else query  # says nothing new, but what the index holds


@cache
def _migrations(of_job: bool, open: bool | None) -> Select[Any]:
    query = _MIGRATIONS
    if of_job:
        query = query.where(migration.c.job_id == bindparam("job_id"))
    if open is not None:
        query = query.where(MIGRATION_OPEN if open else migration.c.step.in_((Step.DONE, Step.ABORTED)))
    return query


class RunFields(TypedDict, total=False):
    """What may change about a run; its generation only before it trains."""

    generation: int
    created_at_ms: int
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
    save_wall_s: float | None
    setup_wall_s: float | None
    repeated_steps: int
    useful_s: float
    checkpoint_s: float
    moved_from: str | None
    moved_bytes: int | None
    kept_bytes: int | None


class MigrationFields(TypedDict, total=False):
    """What may change about a migration, besides its step."""

    offer_id: str
    attempt: int
    token: str
    manifest: str | None
    error: str | None


class RunRows(Transaction):
    """Runs and migrations."""

    def add_run(self, new: Run) -> None:
        """Raises StoreError when the id, or the generation of this job, exists."""
        self._insert(run, **columns(new))

    def run(self, run_id: str) -> Run:
        """Raises NotFoundError."""
        row = self._connection.execute(_ONE_RUN, {"run_id": run_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no run {run_id}")
        return _run(row)

    def runs(
        self,
        job_id: str | None = None,
        live: bool | None = None,
        unreadable: Unreadable | None = None,
        *,
        unsettled: bool = False,
    ) -> list[Run]:
        """In the order of their creation; `live` picks those that have not ended, or those that have, `unsettled` those
        of `unsettled_runs`.

        One that cannot be read is told to `unreadable` with its job's id, and left out; or raised as RowError.
        """
        rows = self._connection.execute(_runs(job_id is not None, live, unsettled), {"job_id": job_id}).all()
        return records(_run, rows, "job_id", unreadable)

    def runs_of(self, job_ids: Collection[str], unreadable: Unreadable | None = None) -> dict[str, list[Run]]:
        """As `runs`, of each of these jobs."""
        found: dict[str, list[Run]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            rows = self._connection.execute(_RUNS_OF, {"job_ids": batch}).all()
            for each in records(_run, rows, "job_id", unreadable):
                found[each.job_id].append(each)
        return found

    def runs_started(self, provider: str, limit: int, unreadable: Unreadable | None = None) -> list[Run]:
        """Those on machines of `provider` that came to train, at most `limit` of the newest LOOKED_AT of all
        providers, the newest first. One that cannot be read is left out and given to `unreadable`; without
        `unreadable`, RowError is raised."""
        rows = self._connection.execute(_STARTED, {"of_provider": f"{provider}/%", "limit": limit}).all()
        return records(_run, rows, "job_id", unreadable)

    def unsettled_runs(self, unreadable: Unreadable | None = None) -> list[Run]:
        """Those that have not ended, and those whose rented machine is not booked to its end."""
        return records(_run, self._connection.execute(_UNSETTLED).all(), "job_id", unreadable)

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        """Raises NotFoundError."""
        if not self._connection.execute(_UPDATE_RUN, {"run_id": run_id, **fields}).rowcount:
            raise NotFoundError(f"there is no run {run_id}")

    def add_migration(self, new: Migration) -> None:
        """Write the intent, before anything is done about it. Raises StoreError when the id or the token exists."""
        self._insert(migration, **columns(new))

    def migration(self, migration_id: str) -> Migration:
        """Raises NotFoundError."""
        row = self._connection.execute(_ONE_MIGRATION, {"migration_id": migration_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no migration {migration_id}")
        return _migration(row)

    def run_of_token(self, token: str) -> str | None:
        """The id of the run that launches with this token are for; None when this store's history has no such launch.

        Also of a run, or a migration, that cannot be read.
        """
        found = self._connection.execute(_OF_TOKEN, {"token": token}).scalar_one_or_none()
        return None if found is None else str(found)

    def migrations(
        self, job_id: str | None = None, open: bool | None = None, unreadable: Unreadable | None = None
    ) -> list[Migration]:
        """In the order of their creation; `open` picks those that are under way, or those that are not.

        One that cannot be read is told to `unreadable` with its job's id, and left out; or raised as RowError.
        """
        query = _migrations(job_id is not None, open)
        return records(_migration, self._connection.execute(query, {"job_id": job_id}).all(), "job_id", unreadable)

    def migrations_of(
        self, job_ids: Collection[str], unreadable: Unreadable | None = None
    ) -> dict[str, list[Migration]]:
        """As `migrations`, of each of these jobs."""
        found: dict[str, list[Migration]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            rows = self._connection.execute(_MIGRATIONS_OF, {"job_ids": batch}).all()
            for each in records(_migration, rows, "job_id", unreadable):
                found[each.job_id].append(each)
        return found

    def advance(self, migration_id: str, expected: Step, to: Step, **fields: Unpack[MigrationFields]) -> bool:
        """Go from step `expected` to `to`; False, and no change, when it is at another step. Raises NotFoundError."""
        change = {"step": to.value, "step_at_ms": self._clock.now_ms(), **fields}
        done = self._connection.execute(_ADVANCE, {"migration_id": migration_id, "expected": expected.value, **change})
        if done.rowcount:
            return True
        self.migration(migration_id)
        return False


def names_a_place(offer_id: str) -> bool:
    """Whether it can be an offer's id: machines are looked for by it, all of a region in one call."""
    try:
        named = OfferId.parse(offer_id)
    except ValueError:
        return False
    return bool(named.region and named.zone)


def can_be_a_generation(generation: int) -> bool:
    """Whether it is small enough for one: fences are named by it."""
    return abs(generation) <= LARGEST_GENERATION


def can_be_moved_from(place: str | None) -> bool:
    """Whether it is a place as runs have it: provider/region/zone."""
    return place is None or (len(parts := place.split("/")) == PLACE_PARTS and all(parts))


def sound(found: Run) -> Run:
    """As it is, if its cells do not contradict each other. Raises UnreadableRowError.

    Only a run that has an end is `ended`, and only such a run is billed to an instant: what is over is one fact.
    """
    if found.end is None and (found.state == "ended" or found.billed_to_ms is not None):
        name, value = ("state", found.state) if found.billed_to_ms is None else ("billed_to_ms", found.billed_to_ms)
        raise UnreadableRowError("run", found.id, f"{name}: it is {value}, but the run has no end")
    if not can_be_moved_from(found.moved_from):
        raise UnreadableRowError("run", found.id, f"moved_from: {reprlib.repr(found.moved_from)} is not a place")
    return _placed("run", found)


def _run(row: Row[Any]) -> Run:
    return sound(record(Run, "run", row))


def _migration(row: Row[Any]) -> Migration:
    return _placed("migration", record(Migration, "migration", row))


def _placed(table: str, found: _Placed) -> _Placed:
    """As it is, if its offer's id names a place and its generation can be one. Raises UnreadableRowError."""
    if not names_a_place(found.offer_id):
        raise UnreadableRowError(table, found.id, f"offer_id: {reprlib.repr(found.offer_id)} is no offer's id")
    if not can_be_a_generation(found.generation):
        raise UnreadableRowError(table, found.id, f"generation: {found.generation} is none")
    return found
