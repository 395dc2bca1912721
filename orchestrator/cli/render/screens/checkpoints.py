"""What `checkpoints` shows."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, clean, instant
from orchestrator.services.checkpoints.views import CheckpointExported, CheckpointList, CheckpointsPruned


def listed(view: CheckpointList, screen: Screen) -> str:
    """The checkpoints of a job, and what is wrong with them."""
    if not view.checkpoints:
        none = f"{clean(view.job)} has no checkpoints in {clean(view.place)}"
        return f"{none}; {clean(view.elsewhere)}" if view.elsewhere else none
    columns = (
        Column("checkpoint"),
        numbers("step"),
        numbers("size"),
        numbers("new", 2),
        numbers("loss", 1),
        numbers("processes", 4),
        Column("saved (its machine's clock)", 3),
        Column("state", text=True),
    )
    rows = [
        (
            each.name,
            str(each.step),
            _size(each.size_bytes),
            _size(each.new_bytes),
            "-" if each.loss is None else f"{each.loss:.6g}",
            str(each.ranks or "-"),
            instant(each.saved_at_ms),
            each.problem or ("ok" if each.counts else "not used: written after the job had moved")
            if view.verified or each.problem or not each.counts
            else "complete",
        )
        for each in view.checkpoints
    ]
    newest = next((each.name for each in view.checkpoints if each.counts and not each.problem), None)
    start = "a run starts from scratch" if newest is None else f"a run starts from {newest}"
    elsewhere = [clean(view.elsewhere)] if view.elsewhere else []
    return blocks(table(columns, rows, screen), " ", f"{start} ({clean(view.place)})", *elsewhere)


def pruned(view: CheckpointsPruned, screen: Screen) -> str:
    """Which checkpoints were deleted."""
    done = "would be deleted" if view.dry_run else "deleted"
    kept = f"{len(view.kept)} stay{'s' if len(view.kept) == 1 else ''}: {', '.join(view.kept) or '-'}"
    if not view.deleted and not view.freed_bytes:
        return f"nothing to delete in {clean(view.place)}; {kept}"
    what = f"{len(view.deleted)} {'checkpoint' if len(view.deleted) == 1 else 'checkpoints'}"
    names = f": {', '.join(view.deleted)}" if view.deleted else ""
    return blocks(screen(f"{done}: {what}, {_size(view.freed_bytes)}{names}", "bold"), kept)


def exported(view: CheckpointExported, screen: Screen) -> str:
    """Which checkpoint was written where."""
    said = f"wrote checkpoint {view.name} (step {view.step}) to {clean(view.path)}: {_size(view.size_bytes)}"
    how = 'torch.load(...)["model"]' if view.format == "torch" else "safetensors.torch.load_file(...)"
    return blocks(screen(said, "bold"), f"read it with {how}", *(f"skipped: {clean(each)}" for each in view.skipped))


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e3:,.1f} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:,.1f} MB"
