"""What was spent, by group, as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, money, note_simulated, number
from orchestrator.formats.readable import unique_labels
from orchestrator.reports.costs import CostRow, CostView

COLUMNS = (
    Column(""),
    numbers("spent"),
    numbers("hours", 3),
    numbers("jobs", 4),
    numbers("before", 1),
    numbers("change", 2),
    numbers("by hours", 5),
    numbers("by price", 5),
)


def costs(view: CostView, screen: Screen) -> str:
    """Costs by group, largest first; amounts to the cent, exact with --csv."""
    if not view.rows:
        return f"nothing was booked in {view.so_far}"
    names = unique_labels((row.key, row.name) for row in view.rows)
    columns = COLUMNS if view.total.by_hours_nano_usd is not None else COLUMNS[:4]
    compared = f"before is {view.before_period}; " if columns is COLUMNS else ""
    rows = [*(_cells(row, names[row.key]) for row in view.rows), _cells(view.total, view.total.name)]
    rest = f"{view.left_out} more groups cost {money(view.rest_nano_usd)}" if view.left_out else ""
    return blocks(
        screen(f"{view.so_far}, by {view.group_by}", "dim"),
        table(columns, [row[: len(columns)] for row in rows], screen),
        rest,
        screen(f"{compared}--csv shows exact amounts", "dim"),
        screen(note_simulated(view.simulated), "dim"),
    )


def _cells(row: CostRow, name: str) -> tuple[str, ...]:
    hours, price = row.by_hours_nano_usd, row.by_price_nano_usd
    return (
        name,
        money(row.amount_nano_usd),
        number(row.machine_ms / 3_600_000),
        str(row.jobs),
        money(row.before_nano_usd),
        money(row.change_nano_usd),
        "-" if hours is None else money(hours),
        "-" if price is None else money(price),
    )
