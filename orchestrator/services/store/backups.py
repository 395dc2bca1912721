"""Backs up, restores and adopts a store."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import Config
from orchestrator.installation import Installation
from orchestrator.services.store.views import StoreBackup, StoreRestored
from orchestrator.services.views import Accepted
from orchestrator.store.recovery import backups
from providers.clock import SystemClock


def backup(config: Config, path: Path) -> StoreBackup:
    """Writes a backup of the store, which stays in use, to the file `path`, which must not exist. Raises StoreError."""
    made = backups.back_up(config.store_url, path)
    return StoreBackup(str(path.absolute()), path.stat().st_size, made.install_id, made.revision)


def restore(config: Config, path: Path) -> StoreRestored:
    """Replaces the store with a backup and keeps the replaced one beside it.

    Everything since the backup is lost: the next control plane reports machines that were rented since, but does not
    end them. If it replaces a store, the restored store takes over from it, as after `adopt`. Raises StoreError, with
    nothing changed, if the store is in use or the backup is invalid.
    """
    done = backups.restore(config.store_url, path, SystemClock().now_ms())
    return StoreRestored(str(path.absolute()), done.backup.install_id, done.backup.revision, done.kept)


def adopt(installation: Installation) -> Accepted:
    """Makes this copy of a store the active one, instead of the original. Raises StoreError."""
    with installation.store.write() as tx:
        tx.allow_adoption()
    message = f"the next control plane here takes over the machines of {installation.store.install_id}; all others stop"
    return Accepted("adopt", (), message, control_plane=True)
