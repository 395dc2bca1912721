"""The store's backups as text."""

from __future__ import annotations

from orchestrator.cli.render.text import Paint, clean
from orchestrator.services.store.views import StoreBackup, StoreRestored


def backup(view: StoreBackup, paint: Paint) -> str:
    size = f"{view.size_bytes / 1e6:.1f} MB"
    return f"wrote {paint(clean(view.path), 'bold')}: {size}, install {view.install_id}, revision {view.revision}"


def restored(view: StoreRestored, paint: Paint) -> str:
    kept = f"; the store before it is kept as {clean(view.kept)}" if view.kept is not None else ""
    return f"restored {paint(clean(view.path), 'bold')}: install {view.install_id}, revision {view.revision}{kept}"
