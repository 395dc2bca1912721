"""client.store: checks, backs up and restores the database."""

from __future__ import annotations

from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.services.store import backups, check, pruning
from orchestrator.services.store.views import StoreBackup, StoreDiagnosis, StorePruned, StoreRestored
from orchestrator.services.views import Accepted


@checked
class Store:
    """SQLite, or Postgres by URL."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def require_current(self) -> None:
        """For programs that run for a long time: raises StoreVersionError if a newer version has upgraded the store
        since it was opened. Raises StoreError."""
        self._session.installation.store.require_current()

    def check(self) -> StoreDiagnosis:
        """Check the store. Changes nothing."""
        return check.check(self._session.config)

    def backup(self, path: str | Path) -> StoreBackup:
        """Write a copy of the store to a new file, while other programs use the store."""
        return backups.backup(self._session.config, path_of(path))

    def restore(self, path: str | Path) -> StoreRestored:
        """Replace the store with a backup; the old store is kept. Raises StoreError while anything uses the store."""
        with self._session.closed():
            return backups.restore(self._session.config, path_of(path))

    def adopt(self) -> Accepted:
        """Make this copy of a store replace the store from which it was copied."""
        return backups.adopt(self._session.installation)

    def prune(self, older_than: str, *, outputs: bool = False, dry_run: bool = False) -> StorePruned:
        """Delete from `store_root` the code and logs, with `outputs` also the outputs, of jobs that ended more than
        `older_than` ("30d") ago, and runtimes that no machine was rented with for as long. Raises UsageError."""
        caller = self._session.caller
        return pruning.prune(self._session.installation, older_than, outputs=outputs, dry_run=dry_run, caller=caller)
