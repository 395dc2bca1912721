"""A back-test and the paper's tables as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, clean, money

if TYPE_CHECKING:
    from orchestrator.arena.group_policies import GroupBacktest
    from orchestrator.arena.paper_tables import PaperTable, PaperTables
    from orchestrator.arena.results import Backtest


def backtest(view: Backtest, screen: Screen) -> str:
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
        Column("policy"),
        numbers("cost"),
        numbers("/ optimum"),
        numbers("p95", 3),
        numbers("worst", 4),
        numbers("missed"),
        numbers("failed", 5),
        numbers(f"against {clean(view.reference)}", 1),
        numbers("95%", 2),
    )
    split = (
        Column("saved"),
        numbers("by spot"),
        numbers("by zone", 1),
        numbers("by GPU", 2),
        numbers("by moving", 3),
        numbers("egress", 4),
        numbers("moves", 6),
        numbers("preempted", 8),
        numbers("useful", 7),
        numbers("time / work", 5),
    )
    filled = f"{view.filled_ticks} ticks were filled in after outages of the recorder" if view.filled_ticks else ""
    inexact = f"{view.inexact_optima} optima are lower bounds" if view.inexact_optima else ""
    assumed = (
        f"{view.assumed_runs} runs have only recorded prices: capacity is assumed to be available"
        if view.assumed_runs
        else ""
    )
    return blocks(
        f"{clean(view.name)}: {view.runs} runs; on demand {money(view.on_demand_nano_usd)}, "
        f"optimum {money(view.optimum_nano_usd)} (means per run, per instance)",
        " ",
        table(head, costs, screen),
        " ",
        table(split, sources, screen),
        " ",
        screen("differences are for the same windows, with bootstrap intervals", "dim"),
        screen("recorded prices and availability; simulated jobs", "dim"),
        screen("; ".join(each for each in (assumed, filled, inexact) if each), "yellow"),
        *(screen(clean(message), "red") for message in view.failures),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def paper(view: PaperTables, screen: Screen) -> str:
    """Each table, with our figure and the published one in every cell."""
    parts = [part for each in view.tables for part in (*_paper_table(each, screen), " ")]
    refused = (
        f"{view.refused_runs} runs left out: they would run past the end of the 2020 log" if view.refused_runs else ""
    )
    return blocks(*parts, screen(refused, "dim"))


def _paper_table(each: PaperTable, screen: Screen) -> tuple[str, ...]:
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
    title = screen(f"{each.title}: ours (published){verdict}", "bold")
    return title, table((Column(""), *(numbers(name, i) for i, name in enumerate(columns))), lines, screen)


def of_jobs(view: GroupBacktest, screen: Screen) -> str:
    """Policies for collections of jobs, one per row."""
    free = not any(view.usd_per_hour.values())
    rows = [
        (
            row.policy,
            *(f"{hours:.2f}" for hours in (row.mean_h, row.p95_h, row.makespan_h)),
            "-" if free else money(row.cost_nano_usd),
            str(row.late) if view.with_deadline else "-",
        )
        for row in view.policies
    ]
    head = (
        Column("policy"),
        numbers("mean h"),
        numbers("p95 h", 1),
        numbers("makespan h", 2),
        numbers("cost"),
        numbers("late"),
    )
    gpus = ", ".join(f"{count} {clean(kind)}" for kind, count in view.cluster.items())
    elastic = next(
        (
            f"{row.policy} rents the machines that it needs instead, at the same prices"
            for row in view.policies
            if row.elastic
        ),
        "",
    )
    return blocks(
        f"{clean(view.name)}: {view.jobs} jobs, {view.with_deadline} with a deadline; {gpus}",
        " ",
        table(head, rows, screen),
        " ",
        screen("times from a job's arrival to its end; makespan: until the last job ends; all simulated", "dim"),
        screen(elastic, "dim"),
    )
