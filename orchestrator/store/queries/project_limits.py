"""The limits of projects under the last control plane, to notice when another configuration lacks them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from orchestrator.errors import StoreError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store.schema import meta
from orchestrator.store.transaction import Transaction

_KEY = "project-limits"


@dataclass(frozen=True, slots=True)
class KeptLimits:
    """The limits of a project, such as `budget = 0.15`, and the place that set them. `lost`: the configuration of the
    last control plane, read from the files `lost_to`, did not have them."""

    project: str
    limits: tuple[str, ...]
    origin: str
    lost: bool = False
    lost_to: str = ""

    def value(self, name: str) -> float | None:
        """One of the limits; None if it was not set."""
        values = (text.removeprefix(f"{name} = ") for text in self.limits if text.startswith(f"{name} = "))
        return next(map(float, values), None)


@dataclass(frozen=True, slots=True)
class _Kept:
    projects: tuple[KeptLimits, ...] = ()


class ProjectLimitRows(Transaction):
    """Reads and writes the limits of projects."""

    def project_limits(self) -> tuple[KeptLimits, ...] | None:
        """The limits under the last control plane; None if none has started yet. Raises StoreError."""
        text = self._connection.execute(select(meta.c.value).where(meta.c.key == _KEY)).scalar_one_or_none()
        try:
            return None if text is None else loads(_Kept, text).projects
        except CodecError as error:
            raise StoreError(
                f"the limits of projects in the store cannot be read: {error}",
                hint="restore a backup: tradewind store restore",
            ) from error

    def set_project_limits(self, kept: tuple[KeptLimits, ...]) -> None:
        """Replaces them."""
        self._connection.execute(delete(meta).where(meta.c.key == _KEY))
        self._connection.execute(insert(meta).values(key=_KEY, value=dumps(_Kept(kept))))
