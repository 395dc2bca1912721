"""Events: the audit trail, in the order of writing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, or_, select

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.formats.codec import dumps
from orchestrator.model import Event
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import ROWS_KEPT, mapping, record
from orchestrator.store.schema import CUTOVER, event, job
from orchestrator.store.transaction import Transaction, columns

_EVENT = [event.c[field.name] for field in fields(Event)]
_OF_KINDS = (
    select(*_EVENT)
    .where(
        event.c.job_id.in_(bindparam("job_ids", expanding=True)), event.c.kind.in_(bindparam("kinds", expanding=True))
    )
    .order_by(event.c.seq.desc())
)
_ALL = select(*_EVENT).order_by(event.c.seq)
_later = event.alias()
_NEWEST_SEQ = select(func.max(_later.c.seq)).where(_later.c.job_id == job.c.id).correlate(job).scalar_subquery()
_NEWEST = select(*_EVENT).where(
    event.c.seq.in_(select(_NEWEST_SEQ).where(job.c.id.in_(bindparam("job_ids", expanding=True))))
)
_SEQ = select(event.c.seq).where(event.c.id == bindparam("event_id"))
_CUTOVERS = (
    select(event.c.job_id, event.c.id, event.c.data)
    .where(CUTOVER)
    .order_by(event.c.seq.desc())
    .limit(bindparam("limit"))
)


_OF_MIGRATION = (
    select(*_EVENT)
    .where(event.c.job_id == bindparam("job_id"), event.c.migration_id == bindparam("migration_id"))
    .order_by(event.c.seq)
)


@cache
def _beginning(prefixes: tuple[str, ...]) -> Select[Any]:
    kinds = or_(*(event.c.kind.startswith(prefix, autoescape=True) for prefix in prefixes))
    return (
        select(*_EVENT)
        .where(event.c.job_id == bindparam("job_id"), kinds)
        .order_by(event.c.seq.desc())
        .limit(bindparam("limit"))
    )


@cache
def _events(job: bool, after: bool, before: bool, kinds: bool, limit: bool, newest_first: bool) -> Select[Any]:
    query = select(*_EVENT).order_by(event.c.seq.desc() if newest_first else event.c.seq)
    if job:
        query = query.where(event.c.job_id == bindparam("job_id"))
    if after:
        query = query.where(event.c.seq > bindparam("after"))
    if before:
        query = query.where(event.c.seq < bindparam("before"))
    if kinds:
        query = query.where(event.c.kind.in_(bindparam("kinds", expanding=True)))
    return query.limit(bindparam("limit")) if limit else query


class EventRows(Transaction):
    """Reads and writes events."""

    def add_event(self, new: Event) -> None:
        """Adds an event. Raises StoreError if its id exists."""
        self._insert(event, **columns(new) | {"data": dumps(new.data), "labels": dumps(new.labels)})

    def events(
        self,
        job_id: str | None = None,
        after_id: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        before_id: str | None = None,
    ) -> list[Event]:
        """The first `limit` events in this order, written after `after_id` and before `before_id`.

        Raises NotFoundError if there is no such event.
        """
        after, before = (None if name is None else self._seq_of_event(name) for name in (after_id, before_id))
        query = _events(
            job_id is not None,
            after is not None,
            before is not None,
            kinds is not None,
            limit is not None,
            newest_first,
        )
        values = {"job_id": job_id, "after": after, "before": before, "kinds": sorted(kinds or ()), "limit": limit}
        return self._query(query, values)

    def newest_of_kinds(self, job_id: str, prefixes: tuple[str, ...], limit: int) -> list[Event]:
        """The newest `limit` events of a job whose kinds begin with one of `prefixes`, newest first."""
        return self._query(_beginning(prefixes), {"job_id": job_id, "limit": limit})

    def events_of_migration(self, job_id: str, migration_id: str) -> list[Event]:
        """The events of a job's migration, in the order of writing."""
        return self._query(_OF_MIGRATION, {"job_id": job_id, "migration_id": migration_id})

    def events_of_all(self) -> Iterator[Event]:
        """All events in the order of writing, as a stream."""
        yield from map(_event, self._connection.execute(_ALL, execution_options={"yield_per": 2000}))

    def newest_events(self, job_ids: Collection[str]) -> dict[str, Event]:
        """The newest event of each of these jobs; jobs without events are missing."""
        found: dict[str, Event] = {}
        for batch in batches(job_ids):
            found.update((str(each.job_id), each) for each in self._query(_NEWEST, {"job_ids": batch}))
        return found

    def events_of(self, job_ids: Collection[str], kinds: Collection[str]) -> dict[str, list[Event]]:
        """The events of these kinds of each of these jobs, newest first."""
        found: dict[str, list[Event]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            for each in self._query(_OF_KINDS, {"job_ids": batch, "kinds": sorted(kinds)}):
                found[str(each.job_id)].append(each)
        return found

    def _seq_of_event(self, event_id: str) -> int:
        seq: int | None = self._connection.execute(_SEQ, {"event_id": event_id}).scalar_one_or_none()
        if seq is None:
            raise NotFoundError(f"there is no event {event_id}")
        return seq

    def cutovers(self, limit: int) -> list[tuple[str, Mapping[str, object]]]:
        """(job id, data) of the latest cutovers of all jobs, newest first; unreadable ones are left out."""
        found: list[tuple[str, Mapping[str, object]]] = []
        for job_id, event_id, data in self._connection.execute(_CUTOVERS, {"limit": limit}):
            with suppress(UnreadableRowError):  # one of many, from another job
                found.append((str(job_id), _data(event_id, data)))
        return found

    def _query(self, query: Select[Any], values: dict[str, Any]) -> list[Event]:
        return [_event(row) for row in self._connection.execute(query, values).all()]


@lru_cache(maxsize=ROWS_KEPT)
def _data(event_id: object, text: object) -> Mapping[str, object]:
    """Raises UnreadableRowError."""
    return MappingProxyType(mapping("event", event_id, text))


def _event(row: Row[Any]) -> Event:
    """Raises UnreadableRowError."""
    data, labels = mapping("event", row.id, row.data), mapping("event", row.id, row.labels)
    return record(Event, "event", row, data=data, labels=labels)
