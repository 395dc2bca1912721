"""Backups of the store, and putting one in its place. Must not know: what is stored."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import Config
from orchestrator.services.store_views import StoreBackup, StoreRestored
from orchestrator.store import backups
from providers.clock import SystemClock


def backup(config: Config, path: Path) -> StoreBackup:
    """A copy of the store in use, in the file `path`, which must not exist. Raises StoreError."""
    made = backups.back_up(config.store_url, path)
    return StoreBackup(str(path.absolute()), path.stat().st_size, made.install_id, made.revision)


def restore(config: Config, path: Path) -> StoreRestored:
    """Put a backup in the place of the store, which is kept beside it.

    What happened since is forgotten: machines that were rented since are ended by the next control plane, unbooked.
    Raises StoreError, with nothing changed, when a control plane acts on the store or the backup is not sound.
    """
    done = backups.restore(config.store_url, path, SystemClock().now_ms())
    return StoreRestored(str(path.absolute()), done.backup.install_id, done.backup.revision, done.kept)
