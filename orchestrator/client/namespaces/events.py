"""client.events: the audit trail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.jobs import events
from orchestrator.services.views import EventList


@checked
class Events:
    """Events are never changed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        job: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        limit: int | None = 100,
        cursor: str | None = None,
    ) -> EventList:
        """The newest events of a job (None: of everything), the oldest first on each page; only of these `kinds`, such
        as `job.submitted`. The next page has the earlier events. Raises UsageError for an invalid kind, limit or
        cursor."""
        return events.events(self._session.installation, job, kinds=kinds, limit=limit, cursor=cursor)

    def follow(self, job: str | None = None, *, limit: int = 100) -> Iterator[EventList]:
        """The newest events, then new events as they happen, in batches; ends when the job ends."""
        return events.follow(self._session.installation, job, limit=limit)
