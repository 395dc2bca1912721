"""Backups of the store, and putting one in its place."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import Config
from orchestrator.installation import Installation
from orchestrator.services.store.views import StoreBackup, StoreRestored
from orchestrator.services.views import Accepted
from orchestrator.store.recovery import backups
from providers.clock import SystemClock


def backup(config: Config, path: Path) -> StoreBackup:
    """A copy of the store in use, in the file `path`, which must not exist. Raises StoreError."""
    made = backups.back_up(config.store_url, path)
    return StoreBackup(str(path.absolute()), path.stat().st_size, made.install_id, made.revision)


def restore(config: Config, path: Path) -> StoreRestored:
    """Put a backup in the place of the store, which is kept beside it.

    What happened since is forgotten: machines that were rented since are told of by the next control plane, and left
    alone. It takes over from the store that it replaces, as after `adopt`; without one to replace, it does not.
    Raises StoreError, with nothing changed, while anything uses the store or when the backup is not sound.
    """
    done = backups.restore(config.store_url, path, SystemClock().now_ms())
    return StoreRestored(str(path.absolute()), done.backup.install_id, done.backup.revision, done.kept)


def adopt(installation: Installation) -> Accepted:
    """Let this copy of a store take the place of the one that it was copied from. Raises StoreError."""
    with installation.store.write() as tx:
        tx.allow_adoption()
    message = (
        f"the next control plane here takes over the machines of {installation.store.install_id}; any other one stops"
    )
    return Accepted("adopt", (), message, control_plane=True)
