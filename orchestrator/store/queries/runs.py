"""Runs and migrations of jobs."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import fields as fields_of
from functools import cache, lru_cache
from itertools import product
from types import NoneType
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from sqlalchemy import Row, Select, and_, bindparam, func, or_, select, update

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.formats.codec import CodecError, dumps, encode, loads
from orchestrator.model import Member, Migration, Run, RunEnd, RunState, Step, billed_together
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import EARLIEST_MS, LATEST_MS, ROWS_KEPT, Unreadable, decoded, records
from orchestrator.store.schema import MIGRATION_OPEN, UNSETTLED, job, migration, run
from orchestrator.store.transaction import Transaction, columns
from providers.offer import OfferId

PLACE_PARTS = 3
LOOKED_AT = 2000  # a provider without a machine among this many latest has no recent ones
LARGEST_GENERATION = 2**31 - 1
_Placed = TypeVar("_Placed", Run, Migration)


class Requested(NamedTuple):
    """A request for `machines` of an offer for a run, at that time (market ms); or of one of `also` instead."""

    run_id: str
    offer_id: str
    machines: int
    at_ms: int
    also: tuple[str, ...] = ()


class Start(NamedTuple):
    """The start of a run: the columns of Run with the durations of its machines' start."""

    offer_id: str
    created_at_ms: int
    billed_from_ms: int
    training_from_ms: int
    machine_from_ms: int | None
    setup_wall_s: float | None


_NO_ID = "tradewind events JOB --output json shows the ids of the job's runs and migrations"
_STARTS = frozenset(product([str], [int], [int], [int], [int, NoneType], [float, NoneType]))
"""The types of the values of a Start."""


@lru_cache(maxsize=ROWS_KEPT)
def _start(values: tuple[Any, ...]) -> Start | None:
    """None if a value is impossible."""
    return Start(*values) if tuple(map(type, values)) in _STARTS and _possible(values[1:4]) else None


def _possible(instants_ms: Sequence[int]) -> bool:
    return all(EARLIEST_MS <= each <= LATEST_MS for each in instants_ms)


_RUN_COLUMNS = tuple(field.name for field in fields_of(Run))
_RUN = select(*(run.c[name] for name in _RUN_COLUMNS))
_RUNS = _RUN.order_by(run.c.created_at_ms, run.c.generation, run.c.id)
_ONE_RUN = _RUN.where(run.c.id == bindparam("run_id"))
_RUNS_OF = _RUNS.where(run.c.job_id.in_(bindparam("job_ids", expanding=True)))
_UNSETTLED = _RUNS.where(UNSETTLED)
_ALSO = (
    select(migration.c.also)
    .where(migration.c.job_id == run.c.job_id, migration.c.target_run_id == run.c.id, migration.c.also.is_not(None))
    .limit(1)
    .scalar_subquery()
)
_REQUESTED = (
    select(run.c.id, run.c.offer_id, run.c.members, run.c.created_at_ms, run.c.instance_id, _ALSO)
    .where(UNSETTLED, run.c.machine_from_ms.is_(None), run.c.created_at_ms >= bindparam("since_ms"))
    .where(or_(run.c.billed_from_ms.is_(None), run.c.billed_from_ms >= bindparam("since_ms")))
)
_TOO_OLD = select(run.c.id).order_by(run.c.id.desc()).offset(LOOKED_AT).limit(1).scalar_subquery()
_STARTED = (
    select(*(run.c[name] for name in Start._fields))
    .where(run.c.id > func.coalesce(_TOO_OLD, ""), run.c.offer_id.like(bindparam("of_provider")))
    .where(run.c.billed_from_ms.is_not(None), run.c.training_from_ms.is_not(None))
    .order_by(run.c.id.desc())
    .limit(bindparam("limit"))
)
_SAVES = (
    select(run.c.save_wall_s, job.c.checkpoint_bytes)
    .join(job, job.c.id == run.c.job_id)
    .where(run.c.id > func.coalesce(_TOO_OLD, ""), run.c.save_wall_s.is_not(None), job.c.checkpoint_bytes.is_not(None))
    .order_by(run.c.id.desc())
    .limit(bindparam("limit"))
)
_UPDATE_RUN = update(run).where(run.c.id == bindparam("run_id"))

_MIGRATION_COLUMNS = tuple(field.name for field in fields_of(Migration))
_MIGRATION = select(*(migration.c[name] for name in _MIGRATION_COLUMNS))
_MIGRATIONS = _MIGRATION.order_by(migration.c.created_at_ms, migration.c.generation, migration.c.id)
_MIGRATIONS_OF = _MIGRATIONS.where(migration.c.job_id.in_(bindparam("job_ids", expanding=True)))
_OPEN_OF = _MIGRATIONS_OF.where(MIGRATION_OPEN)
_ONE_MIGRATION = _MIGRATION.where(migration.c.id == bindparam("migration_id"))
_OF_TOKEN = select(migration.c.target_run_id).where(migration.c.token == bindparam("token"))
_UPDATE_MIGRATION = update(migration).where(migration.c.id == bindparam("migration_id"))
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
    return query.where(UNSETTLED) if live else query  # redundant, but enables the partial index


@cache
def _migrations(of_job: bool, open: bool | None) -> Select[Any]:
    query = _MIGRATIONS
    if of_job:
        query = query.where(migration.c.job_id == bindparam("job_id"))
    if open is not None:
        query = query.where(MIGRATION_OPEN if open else migration.c.step.in_((Step.DONE, Step.ABORTED)))
    return query


class RunFields(TypedDict, total=False):
    """The fields of a run that can change; the generation only before training."""

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
    saved_step: int | None


class MigrationFields(TypedDict, total=False):
    """The fields of a migration, other than its step, that can change."""

    offer_id: str
    attempt: int
    token: str
    manifest: str | None
    error: str | None
    disk_gb: int
    to_live_s: int
    also: tuple[str, ...]


class RunRows(Transaction):
    """Reads and writes runs and migrations."""

    def add_run(self, new: Run) -> None:
        """Adds a run. Raises StoreError if its id exists, or its generation for this job."""
        self._insert(run, **columns(new) | {"members": members_text(new.members)})

    def run(self, run_id: str) -> Run:
        """The run with this id. Raises NotFoundError, RowError."""
        row = self._connection.execute(_ONE_RUN, {"run_id": run_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no run {run_id}", hint=_NO_ID)
        return _run(row)

    def runs(
        self,
        job_id: str | None = None,
        live: bool | None = None,
        unreadable: Unreadable | None = None,
        *,
        unsettled: bool = False,
    ) -> list[Run]:
        """Runs in the order of creation. `live` selects those that have not ended, or have; `unsettled` those of
        `unsettled_runs`.

        `unreadable` is called for unreadable ones, which are skipped; without it, RowError is raised.
        """
        rows = self._connection.execute(_runs(job_id is not None, live, unsettled), {"job_id": job_id}).all()
        return records(_run, rows, "job_id", unreadable)

    def runs_of(self, job_ids: Collection[str], unreadable: Unreadable | None = None) -> dict[str, list[Run]]:
        """Like `runs`, for each of these jobs."""
        found: dict[str, list[Run]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            rows = self._connection.execute(_RUNS_OF, {"job_ids": batch}).all()
            for each in records(_run, rows, "job_id", unreadable):
                found[each.job_id].append(each)
        return found

    def runs_started(self, provider: str, limit: int) -> list[Start]:
        """The starts of runs that trained on machines of `provider`, newest first: at most `limit` of the latest
        LOOKED_AT of all providers. Those with impossible values are skipped."""
        rows = self._connection.execute(_STARTED, {"of_provider": f"{provider}/%", "limit": limit})
        return [each for row in rows if (each := _start(tuple(row))) is not None]

    def saves(self, limit: int) -> list[tuple[float, int]]:
        """(wall seconds of a run's latest save, bytes of its job's checkpoints) of runs of all jobs, newest first: at
        most `limit` of the latest LOOKED_AT. Those with impossible values are skipped."""
        rows = self._connection.execute(_SAVES, {"limit": limit}).all()
        return [
            (float(wall_s), size_bytes)
            for wall_s, size_bytes in rows
            if isinstance(wall_s, int | float) and isinstance(size_bytes, int) and wall_s >= 0 and size_bytes > 0
        ]

    def unsettled_runs(self, unreadable: Unreadable | None = None) -> list[Run]:
        """The runs that have not ended or whose machine is not fully booked."""
        return records(_run, self._connection.execute(_UNSETTLED).all(), "job_id", unreadable)

    def requested_since(self, since_ms: int) -> list[Requested]:
        """The machines that runs requested at `since_ms` (market ms) or later and that have not ended, as far as known.
        Unreadable rows are left out."""
        rows = self._connection.execute(_REQUESTED, {"since_ms": since_ms}).all()
        found = []
        for run_id, offer_id, members, at_ms, instance_id, also in rows:
            with suppress(CodecError):
                machines = max(len(members_in(members)), 1)
                others = () if instance_id is not None else tuple(offers_in(also))
                if isinstance(offer_id, str) and isinstance(at_ms, int):
                    found.append(Requested(str(run_id), offer_id, machines, at_ms, others))
        return found

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        """Changes fields of a run. Raises NotFoundError."""
        self._change_run(run_id, **fields)

    def set_machines(self, run_id: str, machines: Sequence[Member]) -> None:
        """Replaces all machines of a run, and its billed interval by theirs together. Raises NotFoundError."""
        began_ms, ended_ms = billed_together(machines)
        known = next((each.instance_id for each in machines if each.instance_id is not None), None)
        self._change_run(
            run_id,
            instance_id=known,
            billed_from_ms=began_ms,
            billed_to_ms=ended_ms,
            members=members_text(machines) if len(machines) > 1 else None,
        )

    def _change_run(self, run_id: str, **values: object) -> None:
        if not self._connection.execute(_UPDATE_RUN, {"run_id": run_id, **values}).rowcount:
            raise NotFoundError(f"there is no run {run_id}")

    def add_migration(self, new: Migration) -> None:
        """Stores the intent to migrate, before anything is done. Raises StoreError if the id or the token exists."""
        self._insert(migration, **columns(new) | {"also": dumps(new.also) if new.also else None})

    def migration(self, migration_id: str) -> Migration:
        """The migration with this id. Raises NotFoundError, RowError."""
        row = self._connection.execute(_ONE_MIGRATION, {"migration_id": migration_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no migration {migration_id}", hint=_NO_ID)
        return _migration(row)

    def land(self, of: Migration, offer_id: str) -> None:
        """Records the offer of the machines that a migration's launch was granted, on the migration and on its run.
        Raises NotFoundError."""
        self._change_run(of.target_run_id, offer_id=offer_id)
        self._connection.execute(_UPDATE_MIGRATION, {"migration_id": of.id, "offer_id": offer_id})

    def run_of_token(self, token: str) -> str | None:
        """The id of the run for which machines are launched with this token; None if this store has no such launch.

        It also finds unreadable runs and migrations.
        """
        found = self._connection.execute(_OF_TOKEN, {"token": token}).scalar_one_or_none()
        return None if found is None else str(found)

    def migrations(
        self, job_id: str | None = None, open: bool | None = None, unreadable: Unreadable | None = None
    ) -> list[Migration]:
        """Migrations in the order of creation; `open` selects those that are in progress, or those that are not.

        `unreadable` is called for unreadable ones, which are skipped; without it, RowError is raised.
        """
        query = _migrations(job_id is not None, open)
        return records(_migration, self._connection.execute(query, {"job_id": job_id}).all(), "job_id", unreadable)

    def recent_migrations(
        self, since_ms: int, limit: int | None, job_id: str | None = None, before: Migration | None = None
    ) -> list[Migration]:
        """At most `limit` migrations (None: all) that began at `since_ms` or later (of a job; older than `before`),
        newest first. Unreadable ones are skipped."""
        query = _MIGRATION.where(migration.c.created_at_ms >= since_ms)
        if job_id is not None:
            query = query.where(migration.c.job_id == job_id)
        if before is not None:
            at_ms, place = before.created_at_ms, migration.c.created_at_ms
            query = query.where(or_(place < at_ms, and_(place == at_ms, migration.c.id < before.id)))
        newest = query.order_by(migration.c.created_at_ms.desc(), migration.c.id.desc()).limit(limit)
        return records(_migration, self._connection.execute(newest).all(), "job_id", lambda _id, _error: None)

    def migrations_of(
        self, job_ids: Collection[str], unreadable: Unreadable | None = None, *, open: bool = False
    ) -> dict[str, list[Migration]]:
        """Like `migrations`, for each of these jobs; with `open`, only those in progress."""
        found: dict[str, list[Migration]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            rows = self._connection.execute(_OPEN_OF if open else _MIGRATIONS_OF, {"job_ids": batch}).all()
            for each in records(_migration, rows, "job_id", unreadable):
                found[each.job_id].append(each)
        return found

    def advance(self, migration_id: str, expected: Step, to: Step, **fields: Unpack[MigrationFields]) -> bool:
        """Advances from step `expected` to `to`; False, with no change, if it is at another step. Raises
        NotFoundError."""
        change: dict[str, object] = {"step": to.value, "step_at_ms": self._clock.now_ms(), **fields}
        if "also" in fields:
            change["also"] = dumps(fields["also"]) if fields["also"] else None
        done = self._connection.execute(_ADVANCE, {"migration_id": migration_id, "expected": expected.value, **change})
        if done.rowcount:
            return True
        self.migration(migration_id)
        return False


def names_a_place(offer_id: str) -> bool:
    """True if it has the form of an offer id; machines are looked up by it, one region per call."""
    try:
        named = OfferId.parse(offer_id)
    except ValueError:
        return False
    return bool(named.region)  # a provider may rent in a whole region


def can_be_a_generation(generation: int) -> bool:
    """True if it is in the range of a generation, which names fences."""
    return abs(generation) <= LARGEST_GENERATION


def can_be_moved_from(place: str | None) -> bool:
    """True if it is None or a location: provider/region/zone. The zone is empty if the provider has none, and the
    region is empty for a bucket whose region is unknown."""
    parts = [] if place is None else place.split("/")
    return place is None or (len(parts) == PLACE_PARTS and bool(parts[0]) and (bool(parts[1]) or not parts[2]))


def sound(found: Run) -> Run:
    """The run, after checking that its cells do not contradict each other. Raises UnreadableRowError.

    Only a run with an end is `ended`, and only such a run has an end of billing.
    """
    if found.end is None and (found.state == "ended" or found.billed_to_ms is not None):
        name, value = ("state", found.state) if found.billed_to_ms is None else ("billed_to_ms", found.billed_to_ms)
        raise UnreadableRowError("run", found.id, f"{name}: it is {value}, but the run has no end")
    if not can_be_moved_from(found.moved_from):
        raise UnreadableRowError("run", found.id, f"moved_from: {reprlib.repr(found.moved_from)} is not a location")
    if found.members and (found.instance_id is None) != (not found.instance_ids):
        raise UnreadableRowError("run", found.id, f"members: they contradict instance_id {found.instance_id}")
    return _placed("run", found)


def members_text(members: Sequence[Member]) -> str | None:
    """The machines of a gang as the document of their column; None for none."""
    return dumps(members) if members else None


def members_in(text: object) -> tuple[Member, ...]:
    """The inverse of `members_text`. Raises CodecError."""
    if text is None:
        return ()
    if not isinstance(text, str):
        raise CodecError("is not text")
    found = loads(tuple[Member, ...], text)
    for each in found:
        for at_ms in (each.billed_from_ms, each.billed_to_ms):
            if at_ms is not None and not EARLIEST_MS <= at_ms <= LATEST_MS:
                raise CodecError(f"{at_ms} is out of range")
    return found


def offers_in(text: object) -> tuple[str, ...]:
    """The offers in the document of a column. Raises CodecError."""
    if text is None:
        return ()
    if not isinstance(text, str):
        raise CodecError("is not text")
    found = loads(tuple[str, ...], text)
    for each in found:
        if not names_a_place(each):
            raise CodecError(f"{reprlib.repr(each)} is not an offer id")
    return found


def _run(row: Row[Any]) -> Run:
    return _run_of(tuple(row))


@lru_cache(maxsize=ROWS_KEPT)
def _run_of(row: tuple[Any, ...]) -> Run:
    values: dict[str, Any] = dict(zip(_RUN_COLUMNS, row, strict=True))
    text = values["members"]
    try:
        members = [] if text is None else [encode(each) for each in members_in(text)]
    except CodecError as error:
        raise UnreadableRowError("run", values["id"], f"members: {error}") from error
    return sound(decoded(Run, "run", values | {"members": members}))


def _migration(row: Row[Any]) -> Migration:
    return _migration_of(tuple(row))


@lru_cache(maxsize=ROWS_KEPT)
def _migration_of(row: tuple[Any, ...]) -> Migration:
    values: dict[str, Any] = dict(zip(_MIGRATION_COLUMNS, row, strict=True))
    try:
        also = offers_in(values["also"])
    except CodecError as error:
        raise UnreadableRowError("migration", values["id"], f"also: {error}") from error
    return _placed("migration", decoded(Migration, "migration", values | {"also": list(also)}))


def _placed(table: str, found: _Placed) -> _Placed:
    """The row, after checking its offer id and generation. Raises UnreadableRowError."""
    if not names_a_place(found.offer_id):
        raise UnreadableRowError(table, found.id, f"offer_id: {reprlib.repr(found.offer_id)} is not an offer id")
    if not can_be_a_generation(found.generation):
        raise UnreadableRowError(table, found.id, f"generation: {found.generation} is not valid")
    return found
