"""Quotas: the limits of accounts, as last reported by each provider."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction
from providers.base import Quota

_PREFIX, _ASKED = "quotas/", "quotas-asked/"
_STORED = select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_PREFIX))
_ASKED_AT = select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_ASKED))


class QuotaRows(Transaction):
    """Reads and writes quotas."""

    def quotas_stored(self) -> dict[str, str]:
        """The stored text by provider: equal texts are equal quotas."""
        return {str(key).removeprefix(_PREFIX): str(value) for key, value in self._connection.execute(_STORED)}

    def quotas_asked_ms(self) -> dict[str, int]:
        """By provider, the time of the request for the stored quotas (market ms): they include no machine requested
        later. Unreadable times are left out."""
        stored = {str(key).removeprefix(_ASKED): str(value) for key, value in self._connection.execute(_ASKED_AT)}
        return {provider: int(at) for provider, at in stored.items() if at.isdecimal()}

    def set_quotas(self, provider: str, quotas: list[Quota], asked_ms: int) -> bool:
        """Store a provider's answer to the request at `asked_ms`, unless a later answer is stored. Returns whether the
        quotas changed."""
        if asked_ms < self.quotas_asked_ms().get(provider, asked_ms):
            return False
        text = dumps(quotas)
        self._set(f"{_ASKED}{provider}", str(asked_ms))
        if self.quotas_stored().get(provider) == text:
            return False
        self._set(f"{_PREFIX}{provider}", text)
        return True

    def _set(self, key: str, value: str) -> None:
        self._connection.execute(delete(meta).where(meta.c.key == key))
        self._connection.execute(insert(meta).values(key=key, value=value))


def read_quotas(text: str) -> list[Quota]:
    """Stored quotas; none if they cannot be read: the provider reports them again."""
    try:
        return loads(list[Quota], text)
    except CodecError:
        return []
