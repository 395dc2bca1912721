"""The store's backups, and corrections of its ledger, as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, clean, money, where
from orchestrator.services.store.views import LedgerCorrection, StoreBackup, StorePruned, StoreRestored


def backup(view: StoreBackup, screen: Screen) -> str:
    """Where a backup is, and what it contains."""
    size = f"{view.size_bytes / 1e6:.1f} MB"
    return f"wrote {screen(clean(view.path), 'bold')}: {size}, install {view.install_id}, revision {view.revision}"


def restored(view: StoreRestored, screen: Screen) -> str:
    """What was restored, and where the replaced store is."""
    kept = f"; the store before it is kept as {clean(view.kept)}" if view.kept is not None else ""
    return f"restored {screen(clean(view.path), 'bold')}: install {view.install_id}, revision {view.revision}{kept}"


def correction(view: LedgerCorrection, screen: Screen) -> str:
    """What a correction of the ledger booked."""
    if not view.runs:
        return "nothing to correct: each machine's cost is its price times its time"
    columns = (
        Column("job"),
        Column("where", 3),
        numbers("booked", 2),
        numbers("right", 1),
        numbers("difference"),
        numbers("entries", 4),
        Column("run", wide=True),
        Column("offer", wide=True),
    )
    rows = [
        (
            run.job,
            where(run.offer_id),
            money(run.booked_nano_usd, 9),
            money(run.right_nano_usd, 9),
            money(run.right_nano_usd - run.booked_nano_usd, 9),
            str(len(run.entries)),
            run.run_id,
            run.offer_id,
        )
        for run in view.runs
    ]
    total = money(view.change_nano_usd, 9)
    said = f"would be booked: {total}" if view.dry_run else f"booked: {total} ({clean(view.reason)})"
    return blocks(table(columns, rows, screen), " ", screen(said, "bold"))


def pruned(view: StorePruned, screen: Screen) -> str:
    """What was deleted from the store, and how many bytes that freed."""
    count = len(view.jobs)
    jobs = f"{count} {'job' if count == 1 else 'jobs'}"
    runtimes = f" and {len(view.runtimes)} unused {'runtime' if len(view.runtimes) == 1 else 'runtimes'}"
    done = "would be deleted" if view.dry_run else "deleted"
    said = f"{done}: {_mb(view.freed_bytes)} of {jobs}{runtimes if view.runtimes else ''} in {clean(view.store_root)}"
    if not (view.jobs or view.runtimes):
        said = f"nothing to delete in {clean(view.store_root)}"
    kept = f"kept outputs of ended jobs: {_mb(view.kept_bytes)} (--outputs deletes them, too)"
    rows = [
        (
            each.job or "(never submitted)",
            _mb(each.code_bytes),
            _mb(each.log_bytes),
            _mb(each.output_bytes),
            each.job_id,
        )
        for each in view.jobs
    ]
    columns = (Column("job"), numbers("code"), numbers("logs"), numbers("outputs"), Column("id", wide=True))
    parts = [*((table(columns, rows, screen), " ") if rows else ()), screen(said, "bold")]
    return blocks(*parts, *((kept,) if view.kept_bytes else ()))


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
