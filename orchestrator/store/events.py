"""Events: the audit trail, in the order of writing. Must not know what happened, only that it did."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from sqlalchemy import select

from orchestrator.errors import NotFoundError
from orchestrator.model import Event
from orchestrator.store.schema import event
from orchestrator.store.transaction import Transaction, columns, to_mapping, to_text

_EVENT = [event.c[field.name] for field in fields(Event)]


class EventRows(Transaction):
    def add_event(self, new: Event) -> None:
        """Raises StoreError when the id exists."""
        self._insert(event, **columns(new) | {"data": to_text(new.data), "labels": to_text(new.labels)})

    def events(
        self,
        job_id: str | None = None,
        after_id: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """The first `limit` events in this order, of those written after `after_id`.

        Raises NotFoundError when there is no event `after_id`.
        """
        query = select(*_EVENT).order_by(event.c.seq.desc() if newest_first else event.c.seq).limit(limit)
        if job_id is not None:
            query = query.where(event.c.job_id == job_id)
        if after_id is not None:
            seq = self._connection.execute(select(event.c.seq).where(event.c.id == after_id)).scalar_one_or_none()
            if seq is None:
                raise NotFoundError(f"there is no event {after_id}")
            query = query.where(event.c.seq > seq)
        if kinds is not None:
            query = query.where(event.c.kind.in_(sorted(kinds)))
        return [
            Event(**{**row._mapping, "data": to_mapping(row.data), "labels": to_mapping(row.labels)})
            for row in self._connection.execute(query)
        ]
