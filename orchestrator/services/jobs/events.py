"""Lists and follows events, the audit trail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.model import EVENT_KINDS, TERMINAL, Event
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.services.views import EventList
from orchestrator.store import Tx

POLL_WALL_S = 0.3


@dataclass(frozen=True, slots=True)
class _Before:
    """The position before an event; events are never inserted there."""

    event_id: str


_CURSORS = Cursors("events", _Before)


def events(
    installation: Installation,
    ref: str | None = None,
    *,
    kinds: Sequence[str] | None = None,
    limit: int | None = 100,
    cursor: str | None = None,
) -> EventList:
    """The newest `limit` events of a job (None: of all jobs and machines), oldest first; with a cursor, the page before
    the one that returned it. Raises NotFoundError, and UsageError for an unknown kind, an invalid limit or cursor."""
    most = checked_limit(limit)
    for unknown in sorted(set(kinds or ()) - EVENT_KINDS):
        raise UsageError(f"{unknown!r:.40} is not a kind of event", hint=f"one of {', '.join(sorted(EVENT_KINDS))}")
    with installation.store.read() as tx:
        job_id = tx.find_job(ref).id if ref is not None else None
        filters = {"job": job_id, "kinds": None if kinds is None else sorted(kinds)}
        before = _CURSORS.read(cursor, filters)
        found = tx.events(
            job_id=job_id,
            kinds=kinds,
            limit=None if most is None else most + 1,
            newest_first=True,
            before_id=None if before is None else before.event_id,
        )
        page = found[:most]
        names = _names(tx, page) if ref is None else {}
    more = len(page) < len(found)
    return EventList(tuple(reversed(page)), _CURSORS.write(_Before(page[-1].id), filters) if more else None, names)


def _names(tx: Tx, found: Sequence[Event]) -> dict[str, str]:
    """The names of the jobs of some events, by id."""
    return {job.id: job.name for job in tx.outlines_of({each.job_id for each in found if each.job_id is not None})}


def follow(installation: Installation, ref: str | None = None, *, limit: int = 100) -> Iterator[EventList]:
    """New events in batches, after the latest `limit`; ends with the job. Raises NotFoundError."""
    batch = replace(events(installation, ref, limit=limit), next_cursor=None)  # batches only go forward
    last = None
    while True:
        if batch.events:
            yield batch
            last = batch.events[-1].id
        with installation.store.read() as tx:
            job = tx.find_job(ref) if ref is not None else None
            fresh = tx.events(job_id=job.id if job is not None else None, after_id=last)
            names = _names(tx, fresh) if ref is None else {}
        if not fresh and job is not None and job.state in TERMINAL:
            return
        if not fresh:
            installation.clock.sleep(POLL_WALL_S)
        batch = EventList(tuple(fresh), names=names)
