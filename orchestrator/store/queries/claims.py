"""Claims: the last words that this store wrote beside each provider's machines, to detect copies of itself."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from orchestrator.errors import StoreError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction

_ADOPTION = "adoption"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim at a provider. `words` are the last ones that this store wrote or was about to write, newest last.
    `adoption` is the latest permission to overwrite an unknown claim that it has used."""

    words: tuple[str, ...] = ()
    adoption: str | None = None


def allow_adoption(connection: Connection, now_ms: int) -> None:
    """Permits the store to take over once at each provider, whichever store acted there."""
    _put(connection, _ADOPTION, str(now_ms))


class ClaimRows(Transaction):
    """Reads and writes claims."""

    def claim(self, provider: str) -> Claim:
        """The stored claim at a provider. Raises StoreError."""
        text = self._value(_key(provider))
        if text is None:
            return Claim()
        try:
            return loads(Claim, text)
        except CodecError as error:
            raise StoreError(
                f"the store's claim on the machines of {provider} cannot be read: {error}",
                hint="restore a backup: tradewind store restore",
            ) from error

    def set_claim(self, provider: str, claim: Claim) -> None:
        """Stores the claim at a provider."""
        _put(self._connection, _key(provider), dumps(claim))

    def adoption(self) -> str | None:
        """The latest permission to take over; None if there never was one."""
        return self._value(_ADOPTION)

    def allow_adoption(self) -> None:
        """Permits this store to take over once at each provider, whichever store acted there."""
        allow_adoption(self._connection, self._clock.now_ms())

    def _value(self, key: str) -> str | None:
        found = self._connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar_one_or_none()
        return None if found is None else str(found)


def _key(provider: str) -> str:
    return f"claim/{provider}"


def _put(connection: Connection, key: str, value: str) -> None:
    connection.execute(delete(meta).where(meta.c.key == key))
    connection.execute(insert(meta).values(key=key, value=value))
