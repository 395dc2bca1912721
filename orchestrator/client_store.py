"""The SDK's store: opened when it is first needed, checked, corrected, backed up, restored, closed. Base of the
Client."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.config import Config

if TYPE_CHECKING:
    from orchestrator.installation import Installation
    from orchestrator.services.store.views import LedgerCorrection, StoreBackup, StoreDiagnosis, StoreRestored
    from orchestrator.services.views import Accepted


class StoreClient:
    """What a user can do with the store itself."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._installation: Installation | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store. Jobs go on."""
        if self._installation is not None:
            self._installation.close()
            self._installation = None

    @property
    def _opened(self) -> Installation:
        if self._installation is None:
            from orchestrator.installation import open_installation

            self._installation = open_installation(self.config)
        return self._installation

    def check_store(self) -> StoreDiagnosis:
        """Look for what is wrong with the store. Changes nothing."""
        from orchestrator.services.store import check

        return check.check(self.config)

    def correct_ledger(self, reason: str, job: str | None = None, *, dry_run: bool = False) -> LedgerCorrection:
        """Book what is missing for each run to be at its price times its time. Raises NotFoundError, UsageError."""
        from orchestrator.services.store import ledger_correction

        return ledger_correction.correct(self._opened, reason, job, dry_run=dry_run)

    def backup_store(self, path: str | Path) -> StoreBackup:
        """Write a copy of the store to a file that does not exist yet, while others go on."""
        from orchestrator.services.store import backups

        return backups.backup(self.config, Path(path))

    def restore_store(self, path: str | Path) -> StoreRestored:
        """Put a backup in the place of the store, which is kept. Raises StoreError while anything uses the store."""
        from orchestrator.services.store import backups

        self.close()
        return backups.restore(self.config, Path(path))

    def adopt_store(self) -> Accepted:
        """Let this copy of a store take the place of the one that it was copied from."""
        from orchestrator.services.store import backups

        return backups.adopt(self._opened)

    def reap(self, instance_id: str) -> Accepted:
        """End a machine of this installation that its store did not rent. Raises UsageError for one that it did,
        NotFoundError, ProviderFailure."""
        from orchestrator.services.control_plane import unmanaged

        return unmanaged.reap(self._opened, instance_id)
