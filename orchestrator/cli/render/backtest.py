"""A back-test and the paper's tables as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.render.text import Paint, blocks, clean, money, table

if TYPE_CHECKING:
    from orchestrator.arena.paper_tables import PaperTable, PaperTables
    from orchestrator.arena.results import Backtest


def backtest(view: Backtest, paint: Paint) -> str:
    """The policies, and where each dollar was saved."""
    costs = [
        (
            row.policy,
            money(row.cost_nano_usd),
            *(_ratio(value) for value in (row.over_optimum, row.p95, row.worst)),
            str(row.missed),
            str(row.failed),
            money(row.difference_nano_usd),
            f"{money(row.difference_low_nano_usd)} .. {money(row.difference_high_nano_usd)}",
        )
        if row.runs
        else (row.policy, *["-"] * 4, "0", str(row.failed), "-", "-")
        for row in view.policies
    ]
    sources = [
        (
            row.policy,
            money(row.saved_by_spot_nano_usd),
            money(row.saved_by_zone_nano_usd),
            money(row.saved_by_gpu_nano_usd),
            money(row.saved_by_moving_nano_usd),
            money(row.egress_nano_usd),
            f"{row.moves:.1f}",
            f"{row.preemptions:.1f}",
            f"{row.useful:.0%}",
            f"{row.stretch:.2f}",
        )
        for row in view.policies
        if row.runs
    ]
    head = (
        "policy",
        "cost",
        "/ optimum",
        "p95",
        "worst",
        "missed",
        "failed",
        f"against {clean(view.reference)}",
        "95 %",
    )
    split = (
        "saved",
        "by spot",
        "by zone",
        "by GPU",
        "by moving",
        "egress",
        "moves",
        "preempted",
        "useful",
        "time / work",
    )
    filled = f"{view.filled_ticks} ticks were filled after outages of the recorder" if view.filled_ticks else ""
    inexact = f"{view.inexact_optima} optima are lower bounds" if view.inexact_optima else ""
    assumed = (
        f"{view.assumed_runs} runs have recorded prices only: capacity is taken to be there"
        if view.assumed_runs
        else ""
    )
    return blocks(
        f"{clean(view.name)}: {view.runs} runs; on demand {money(view.on_demand_nano_usd)}, "
        f"optimum {money(view.optimum_nano_usd)} (means per run, per instance)",
        " ",
        table(head, costs, paint, right=range(1, 9)),
        " ",
        table(split, sources, paint, right=range(1, 10)),
        " ",
        paint("a difference is on the same windows, with its bootstrap interval", "dim"),
        paint("recorded prices and availability; simulated jobs", "dim"),
        paint("; ".join(each for each in (assumed, filled, inexact) if each), "yellow"),
        *(paint(clean(message), "red") for message in view.failures),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def paper(view: PaperTables, paint: Paint) -> str:
    """Each table with ours and the published figure in every cell."""
    parts = [part for each in view.tables for part in (*_paper_table(each, paint), " ")]
    refused = f"{view.refused_runs} runs left out: they would outlast the log of 2020" if view.refused_runs else ""
    return blocks(*parts, paint(refused, "dim"))


def _paper_table(each: PaperTable, paint: Paint) -> tuple[str, ...]:
    rows = list(dict.fromkeys(cell.row for cell in each.cells))
    columns = list(dict.fromkeys(cell.column for cell in each.cells))
    cells = {(cell.row, cell.column): cell for cell in each.cells}
    lines = []
    for row in rows:
        line = [row]
        for column in columns:
            cell = cells[row, column]
            known = "" if cell.published is None else f" ({cell.published:.4g})"
            line.append(f"{cell.value:.3f}".rstrip("0").rstrip(".") + known)
        lines.append(line)
    verdict = ""
    if each.within is not None:
        verdict = "met" if each.worst <= each.within + 1e-9 else "MISSED"
        verdict = f"; largest distance {each.worst:.4f}, at most {each.within:g}: {verdict}"
    title = paint(f"{each.title}: ours (published){verdict}", "bold")
    return title, table(("", *columns), lines, paint, right=range(1, len(columns) + 1))
