"""The former places of `store_root`, each with the end of its use: objects saved there are still there."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from orchestrator.errors import StoreError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction

_KEY = "left-store-roots"


@dataclass(frozen=True, slots=True)
class FormerRoot:
    """A folder or URL that was `store_root` until `until_ms` (market time)."""

    root: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class _Left:
    roots: tuple[FormerRoot, ...] = ()


class FormerRootRows(Transaction):
    """Reads and writes the former places of the object store."""

    def former_roots(self) -> tuple[FormerRoot, ...]:
        """All former places, the earliest first. Raises StoreError."""
        text = self._connection.execute(select(meta.c.value).where(meta.c.key == _KEY)).scalar_one_or_none()
        try:
            return () if text is None else loads(_Left, text).roots
        except CodecError as error:
            raise StoreError(
                f"the former places of store_root cannot be read: {error}",
                hint="restore a backup: tradewind store restore",
            ) from error

    def add_former_root(self, left: FormerRoot) -> None:
        """Adds the latest place. Raises StoreError."""
        roots = (*self.former_roots(), left)
        self._connection.execute(delete(meta).where(meta.c.key == _KEY))
        self._connection.execute(insert(meta).values(key=_KEY, value=dumps(_Left(roots))))
