"""Events: the audit trail, as it is and as it grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.installation import Installation
from orchestrator.model import TERMINAL
from orchestrator.services.views import EventList

POLL_WALL_S = 0.3


def events(
    installation: Installation, ref: str | None = None, *, kinds: Sequence[str] | None = None, limit: int = 100
) -> EventList:
    """The newest `limit` events of a job (None: of everything), oldest first. Raises NotFoundError."""
    with installation.store.read() as tx:
        job_id = tx.find_job(ref).id if ref is not None else None
        newest = tx.events(job_id=job_id, kinds=kinds, limit=limit, newest_first=True)
    return EventList(tuple(reversed(newest)))


def follow(installation: Installation, ref: str | None = None, *, limit: int = 100) -> Iterator[EventList]:
    """Events as they come, in batches, beginning with the newest `limit`; ends with the job. Raises NotFoundError."""
    batch = events(installation, ref, limit=limit)
    last = None
    while True:
        if batch.events:
            yield batch
            last = batch.events[-1].id
        with installation.store.read() as tx:
            job = tx.find_job(ref) if ref is not None else None
            fresh = tx.events(job_id=job.id if job is not None else None, after_id=last)
        if not fresh and job is not None and job.state in TERMINAL:
            return
        if not fresh:
            installation.clock.sleep(POLL_WALL_S)
        batch = EventList(tuple(fresh))
