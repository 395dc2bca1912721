"""Views of store operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.model import Entry
from orchestrator.services.views import Check


@dataclass(frozen=True, slots=True)
class StoreBackup:
    """A backup of the store."""

    kind: ClassVar[str] = "store-backup"

    path: str
    size_bytes: int
    install_id: str
    revision: str


@dataclass(frozen=True, slots=True)
class StoreRestored:
    """A restored backup. `kept` is the file or schema to which the replaced store was moved; None if there was none."""

    kind: ClassVar[str] = "store-restored"

    path: str
    install_id: str
    revision: str
    kept: str | None


@dataclass(frozen=True, slots=True)
class PrunedJob:
    """The deleted data of a job that has ended. `job` is "" for a submission that was never completed."""

    job: str
    job_id: str
    objects: int
    code_bytes: int
    log_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class PrunedRuntime:
    """A version of Tradewind's own code that no machine has used for a while."""

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StorePruned:
    """What was deleted from `store_root`. `dry_run`: nothing was deleted. `kept_bytes`: the kept outputs of these
    jobs."""

    kind: ClassVar[str] = "store-pruned"

    dry_run: bool
    store_root: str
    older_than_s: float
    jobs: tuple[PrunedJob, ...]
    runtimes: tuple[PrunedRuntime, ...]
    freed_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class CorrectedRun:
    """A run whose booked sum is not its price times its time, and the correcting entries."""

    job: str
    job_id: str
    run_id: str
    offer_id: str
    booked_nano_usd: int
    right_nano_usd: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LedgerCorrection:
    """A ledger correction. `dry_run`: nothing was booked. `change_nano_usd` is the sum of all new entries."""

    kind: ClassVar[str] = "ledger-correction"

    dry_run: bool
    reason: str
    runs: tuple[CorrectedRun, ...]
    change_nano_usd: int


@dataclass(frozen=True, slots=True)
class StoreDiagnosis:
    """All checks of `store check`."""

    kind: ClassVar[str] = "store-check"

    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        """True if a check failed."""
        return any(check.state == "fail" for check in self.checks)
