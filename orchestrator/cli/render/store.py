"""The store's backups as text."""

from __future__ import annotations

from orchestrator.cli.render.text import Screen, clean
from orchestrator.services.store.views import StoreBackup, StoreRestored


def backup(view: StoreBackup, screen: Screen) -> str:
    """Where a backup is, and what it contains."""
    size = f"{view.size_bytes / 1e6:.1f} MB"
    return f"wrote {screen(clean(view.path), 'bold')}: {size}, install {view.install_id}, revision {view.revision}"


def restored(view: StoreRestored, screen: Screen) -> str:
    """What was restored, and where the replaced store is."""
    kept = f"; the store before it is kept as {clean(view.kept)}" if view.kept is not None else ""
    return f"restored {screen(clean(view.path), 'bold')}: install {view.install_id}, revision {view.revision}{kept}"
