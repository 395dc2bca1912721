"""What the services of the store answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.model import Entry
from orchestrator.services.views import Check


@dataclass(frozen=True, slots=True)
class StoreBackup:
    """A copy of the store, at its schema revision."""

    kind: ClassVar[str] = "store-backup"

    path: str
    size_bytes: int
    install_id: str
    revision: str


@dataclass(frozen=True, slots=True)
class StoreRestored:
    """`kept` is where that is now which the backup replaced: a file or a schema; None when there was nothing."""

    kind: ClassVar[str] = "store-restored"

    path: str
    install_id: str
    revision: str
    kept: str | None


@dataclass(frozen=True, slots=True)
class CorrectedRun:
    """A run whose books are not its price times its time, and the entries that make them so."""

    job: str
    job_id: str
    run_id: str
    offer_id: str
    booked_nano_usd: int
    right_nano_usd: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LedgerCorrection:
    """`dry_run`: nothing was booked. `change_nano_usd` is the sum of all new entries."""

    kind: ClassVar[str] = "ledger-correction"

    dry_run: bool
    reason: str
    runs: tuple[CorrectedRun, ...]
    change_nano_usd: int


@dataclass(frozen=True, slots=True)
class StoreDiagnosis:
    kind: ClassVar[str] = "store-check"

    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        return any(check.state == "fail" for check in self.checks)
