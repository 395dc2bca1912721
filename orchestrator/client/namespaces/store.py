"""client.store: the database behind everything, checked, backed up and restored."""

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
        """For a program that runs for long. Raises StoreVersionError if a newer version has upgraded the store since it
        was opened, StoreError."""
        self._session.installation.store.require_current()

    def check(self) -> StoreDiagnosis:
        """What is wrong with the store. Changes nothing."""
        return check.check(self._session.config)

    def backup(self, path: str | Path) -> StoreBackup:
        """Write a copy of the store to a file that does not exist yet, while others go on."""
        return backups.backup(self._session.config, path_of(path))

    def restore(self, path: str | Path) -> StoreRestored:
        """Put a backup in the place of the store, which is kept. Raises StoreError while anything uses the store."""
        with self._session.closed():
            return backups.restore(self._session.config, path_of(path))

    def adopt(self) -> Accepted:
        """Let this copy of a store take the place of the one that it was copied from."""
        return backups.adopt(self._session.installation)

    def prune(self, older_than: str, *, outputs: bool = False, dry_run: bool = False) -> StorePruned:
        """Delete the code and logs, with `outputs` also the outputs, that `store_root` holds of jobs that ended longer
        ago than `older_than` ("30d"), and runtimes that no machine was rented with for so long. Raises UsageError."""
        caller = self._session.caller
        return pruning.prune(self._session.installation, older_than, outputs=outputs, dry_run=dry_run, caller=caller)
