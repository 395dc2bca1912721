"""client.events: the audit trail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.jobs import events
from orchestrator.services.views import EventList


@checked
class Events:
    """What was written is never changed."""

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
        """The newest events of a job (None: of everything), within the page oldest first; only of these `kinds`, such
        as `job.submitted`. The next page has the events before them. Raises UsageError for a kind, limit or cursor
        that is not valid."""
        return events.events(self._session.installation, job, kinds=kinds, limit=limit, cursor=cursor)

    def follow(self, job: str | None = None, *, limit: int = 100) -> Iterator[EventList]:
        """The newest events and those to come, in batches; ends with the job."""
        return events.follow(self._session.installation, job, limit=limit)
