"""Quotas: the limits of accounts, as each provider reported them last."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction
from providers.base import Quota

_PREFIX = "quotas/"
_STORED = select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_PREFIX))


class QuotaRows(Transaction):
    """Reads and writes quotas."""

    def quotas_stored(self) -> dict[str, str]:
        """By provider, as stored: equal texts are equal quotas."""
        return {str(key).removeprefix(_PREFIX): str(value) for key, value in self._connection.execute(_STORED)}

    def set_quotas(self, provider: str, quotas: list[Quota]) -> bool:
        """Store what a provider reported. Returns whether that is news."""
        key, text = f"{_PREFIX}{provider}", dumps(quotas)
        if self.quotas_stored().get(provider) == text:
            return False
        self._connection.execute(delete(meta).where(meta.c.key == key))
        self._connection.execute(insert(meta).values(key=key, value=text))
        return True


def read_quotas(text: str) -> list[Quota]:
    """Stored quotas; none if they cannot be read: the provider reports them again."""
    try:
        return loads(list[Quota], text)
    except CodecError:
        return []
