"""Corrections of the ledger as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, clean, money, where
from orchestrator.services.store.views import LedgerCorrection


def correction(view: LedgerCorrection, screen: Screen) -> str:
    """What a correction of the ledger booked."""
    if not view.runs:
        return "nothing to correct: every machine is booked at its price times its time"
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
