"""What accounts may not rent although it is configured, as each provider reported it last."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction
from providers.closed import Closed

_PREFIX = "closed/"


class ClosedRows(Transaction):
    """Reads and writes what is closed."""

    def closed(self, provider: str) -> list[Closed]:
        """What a provider reported last; nothing if that cannot be read: it is reported again."""
        found = self._connection.execute(select(meta.c.value).where(meta.c.key == f"{_PREFIX}{provider}"))
        try:
            return loads(list[Closed], str(found.scalar_one_or_none() or "[]"))
        except CodecError:
            return []

    def set_closed(self, provider: str, closed: list[Closed]) -> None:
        """Store what a provider reported."""
        if closed != self.closed(provider):
            key = f"{_PREFIX}{provider}"
            self._connection.execute(delete(meta).where(meta.c.key == key))
            self._connection.execute(insert(meta).values(key=key, value=dumps(closed)))
