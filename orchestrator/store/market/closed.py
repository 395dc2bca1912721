"""Configured regions and types that accounts may not rent, as last reported by each provider."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction
from providers.closed import Closed

_PREFIX = "closed/"


class ClosedRows(Transaction):
    """Reads and writes closed regions and types."""

    def closed(self, provider: str) -> list[Closed]:
        """The last report of a provider; empty if it cannot be read, because the provider reports it again."""
        found = self._connection.execute(select(meta.c.value).where(meta.c.key == f"{_PREFIX}{provider}"))
        try:
            return loads(list[Closed], str(found.scalar_one_or_none() or "[]"))
        except CodecError:
            return []

    def set_closed(self, provider: str, closed: list[Closed]) -> None:
        """Store the report of a provider."""
        if closed != self.closed(provider):
            key = f"{_PREFIX}{provider}"
            self._connection.execute(delete(meta).where(meta.c.key == key))
            self._connection.execute(insert(meta).values(key=key, value=dumps(closed)))
