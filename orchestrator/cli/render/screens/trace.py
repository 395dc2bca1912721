"""How a decision was made: the rule, the facts it used, and a table of the options with their values."""

from __future__ import annotations

from orchestrator.cli.render.screens.decisions import headline
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, amount, blocks, clean, number, span
from orchestrator.services.views import Decision

COLUMNS = (
    Column("  option"),
    Column("offer", text=True),
    numbers("wait"),
    numbers("cost"),
    numbers("time"),
    numbers("value"),
)


def trace(view: Decision, screen: Screen) -> str:
    """The options compared for one job. The smallest value is the best."""
    its = view.trace
    if its is None:
        return ""
    rows = [
        (
            f"  {each.action}",
            each.offer_id or "",
            span(each.wait_s) if each.wait_s else "",
            amount(each.cost_nano_usd),
            span(each.duration_s),
            number(each.value),
        )
        for each in its.options
    ]
    return blocks(
        headline(view, screen),
        f"  {clean(view.reason)}",
        f"  compared by {its.rule}",
        *(f"  {name}: {clean(text)}" for name, text in its.facts),
        table(COLUMNS, rows, screen) if rows else "",
    )
