"""Profiles and imported throughputs as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, amount, blocks, clean, note_simulated, number, rate, scaled
from orchestrator.services.speed.views import ImportedTable, ProfileRow, ProfileView

GB = 1e9


def profile(view: ProfileView, screen: Screen) -> str:
    """The work of one step, then a line per kind of hardware."""
    half = f" ({view.half_flops / view.flops:.0%} of them FP16/BF16)" if view.half_flops else ""
    head = screen(f"{clean(view.name)}: one step", "bold")
    does = (
        f"{scaled(view.flops, 'FLOP')}{half}, {scaled(view.traffic_bytes, 'B')} read and written by "
        f"{view.operations} operations, {scaled(view.parameters, '').strip()} parameters; "
        f"{number(view.step_wall_s)} s here, {number(view.outside_wall_s)} s outside operations (data, Python), which "
        f"a faster GPU does not shorten"
    )
    at = f"speeds are predicted at {view.precision}" + (f" for {view.computes}" if view.computes else "")
    shared = "" if view.sharding == "none" else f"; several GPUs of a machine divide it: {view.sharding}"
    needs = (
        f"needs {scaled(view.gpu_memory_bytes, 'B')} on a GPU: {scaled(view.resident_bytes, 'B')} weights, gradients "
        f"and optimizer, {scaled(view.activation_bytes, 'B')} activations, the rest for CUDA itself{shared}"
    )
    columns = (
        Column("gpu"),
        numbers("steps/s"),
        numbers("p5-p95", 2),
        numbers("price"),
        numbers("$/1k steps"),
        Column("", 1, text=True),
    )
    clock = ""
    if view.simulated and view.clock_factor != 1:
        clock = (
            f"steps/s of SIM kinds are per second of market time: 1 real second is {view.clock_factor:g} market seconds"
        )
    rows = [_row(row) for row in view.kinds]
    sources = sorted({row.throughput_source for row in view.kinds})
    return blocks(
        head,
        does,
        needs,
        at,
        " ",
        table(columns, rows, screen),
        " ",
        *(f"speeds: {clean(source)}" for source in sources),
        clock,
        screen(note_simulated(view.simulated, "prices of SIM kinds"), "dim"),
    )


def imported(view: ImportedTable, screen: Screen) -> str:
    """Which measured speeds were imported."""
    misfits = f", {view.misfits} of which say that the job does not fit" if view.misfits else ""
    return blocks(
        screen(f"{clean(view.source)}: {view.rates} rates{misfits}", "bold"),
        f"{len(view.jobs)} jobs of {len(view.families)} model families on {', '.join(view.gpus)}",
    )


def _row(row: ProfileRow) -> tuple[str, ...]:
    name = "cpu" if row.gpu is None else f"{row.gpu_count}x{row.gpu}"
    if row.shortfall_bytes:
        return (
            name,
            "-",
            "-",
            rate(row.nano_usd_per_hour),
            "-",
            f"does not fit: {row.shortfall_bytes / GB:.1f} GB short",
        )
    per_1000 = "-" if row.nano_usd_per_step is None else amount(round(row.nano_usd_per_step * 1000))
    interval = f"{number(row.steps_per_s_low, 3)}-{number(row.steps_per_s_high, 3)}"
    return (name, number(row.steps_per_s), interval, rate(row.nano_usd_per_hour), per_1000, "")
