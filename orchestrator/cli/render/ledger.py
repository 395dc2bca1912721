"""Corrections of the books as text."""

from __future__ import annotations

from orchestrator.cli.render.text import Paint, blocks, clean, money, table
from orchestrator.services.store.views import LedgerCorrection


def correction(view: LedgerCorrection, paint: Paint) -> str:
    if not view.runs:
        return "nothing to correct: every machine is booked at its price times its time"
    head = ("job", "run", "offer", "booked", "right", "difference", "entries")
    rows = [
        (
            run.job,
            run.run_id,
            run.offer_id,
            money(run.booked_nano_usd, 9),
            money(run.right_nano_usd, 9),
            money(run.right_nano_usd - run.booked_nano_usd, 9),
            str(len(run.entries)),
        )
        for run in view.runs
    ]
    total = money(view.change_nano_usd, 9)
    said = f"would be booked: {total}" if view.dry_run else f"booked: {total} ({clean(view.reason)})"
    return blocks(table(head, rows, paint, right=range(3, 7)), "", paint(said, "bold"))
