"""The arena: reproduces the core paper, compares every policy with the optimum on recorded markets, and times itself.

    python benchmarks/arena.py [--quick] [--json] [--table]

Needs the folder `shared` next to the repository (or TRADEWIND_SHARED) and pyarrow. Targets:

- the paper: 120 published ratios within 0.01, the table under honest rules within 0.02, all of it within 10 s;
- the runs of reference_results.csv: on-demand within 0.1 % and the optimum within 0.5 % for each run; greedy, Uniform
  Progress (this version and SkyNomad's) and SkyNomad's two variants within 2 % of the mean;
- 25 days of 195 s ticks in six zones: within 10 s, and within 1 s for the baseline `daily`;
- the optimum of 96 hours: within 5 s.

--quick plays every ninth reference run instead of all 198. Reported without a target: each policy's cost over the
optimum (mean over cells, worst run) and its missed deadlines.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from orchestrator.arena.baselines.registry import BASELINES
from orchestrator.arena.formats import load
from orchestrator.arena.optimum import optimum
from orchestrator.arena.paper_tables import paper_tables
from orchestrator.arena.protocol import TickPolicy
from orchestrator.arena.runner import hindsight
from orchestrator.arena.ticks import Outcome, Task, play
from orchestrator.arena.traces import Trace, Window
from orchestrator.policy import online

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[1] / ".." / "shared")
T = TypeVar("T")
QUICK_EVERY = 9
TRACES = (
    ("aws_v100x1_2023.npz", 1, 40.0),
    ("aws_v100x1_2022.npz", 1, 40.0),
    ("aws_v100x8_2022.npz", 1, 40.0),
    ("aws_v100x4node_2023.npz", 4, 24.0),
    ("gcp_h100x8_2025.npz", 1, 24.0),
    ("gcp_h100x8_2025.npz", 16, 24.0),
)
PUBLISHED = {
    "greedy": "greedy_usd",
    "uniform-progress": "uniform_progress_usd",
    "uniform-progress-multi": "up_multi_usd",
    "skynomad": "skynomad_risk_usd",
    "skynomad-rr": "skynomad_rr_usd",
}
RATIOS = (1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0)
SWEEP_STARTS = 4


@dataclass(frozen=True, slots=True)
class Reference:
    """One published run."""

    row: dict[str, str]
    task: Task
    window: Window

    @property
    def cell(self) -> tuple[str, ...]:
        return tuple(self.row[key] for key in ("family", "zones", "deadline_h"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a ninth of the reference runs: within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    parser.add_argument(
        "--sweep", action="store_true", help="instead, print every trace at deadline ratios 1.05 to 3, as Markdown"
    )
    parser.add_argument("--table", action="store_true", help="also print every family and policy, as Markdown")
    options = parser.parse_args()
    if not (SHARED / "traces").exists():
        print(f"needs the shared data in {SHARED}", file=sys.stderr)
        return 2
    if options.sweep:
        print(sweep())
        return 0
    claims = [*paper(), *speed()]
    runs = references(QUICK_EVERY if options.quick else 1)
    found, rows = reference_claims(runs)
    claims += found
    if options.table:
        print(markdown(rows))
    elif not options.json:
        beside(rows)
    notes = [f"{len(runs)} of the published reference runs; times are CPU seconds of this process"]
    return show("The arena", claims, as_json=options.json, notes=notes)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """(CPU seconds, result)."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def paper() -> list[Claim]:
    """The core paper's tables."""
    seconds, result = timed(lambda: paper_tables(SHARED / "market"))
    claims = [Claim(f"paper: {table.title}", table.worst, "off", table.within) for table in result.tables]
    return [*claims, Claim("paper: all tables", seconds, "s", 10.0)]


def speed() -> list[Claim]:
    """Time 25 days of ticks, and one optimum."""
    trace = load(SHARED / "traces" / "aws_v100x1_2023.npz")
    whole = trace.ticks * trace.tick_ms / 3_600_000
    claims = []
    task = Task.of(0.98 * whole, whole, 0.2, 50.0, trace.tick_ms)
    window = trace.window(0, task.ticks)
    for name, most in (("daily", 1.0), (online.NAME, 10.0)):
        seconds, done = timed(partial(play, makers()[name](), task, window))
        days = done.ticks_used * trace.tick_ms / 86_400_000
        claims.append(Claim(f"{days:.0f} days at 195 s, {len(window.zones)} zones, {name}", seconds, "s", most))
    for ratio in (1.25, 1.5, 2.0, 3.0):
        task = Task.of(96.0, 96.0 * ratio, 0.2, 50.0, trace.tick_ms)
        seconds, _ = timed(partial(optimum, task, trace.window(0, task.ticks)))
        claims.append(Claim(f"optimum of 96 h, deadline {ratio:g} x", seconds, "s", 5.0))
    return claims


def sweep() -> str:
    """Print every trace at every deadline ratio: mean over starts, 95th percentile and worst run, missed deadlines."""
    parts = []
    for name, gang, work_h in TRACES:
        trace = load(SHARED / "traces" / name)
        found: dict[str, list[list[tuple[float, bool]]]] = {policy: [] for policy in makers()}
        found["static-in-hindsight"] = []
        for ratio in RATIOS:
            task = Task.of(work_h, ratio * work_h, 0.2, 50.0, trace.tick_ms)
            starts = [(trace.ticks - task.ticks) * i // (SWEEP_STARTS - 1) for i in range(SWEEP_STARTS)]
            windows = [trace.window(start, task.ticks, gang=gang) for start in starts]
            optima = [optimum(task, window).usd for window in windows]
            for policy, make in makers().items():
                found[policy].append(_ratios([play(make(), task, window) for window in windows], optima))
            found["static-in-hindsight"].append(_ratios([hindsight(task, window) for window in windows], optima))
        parts.append(_sweep_table(f"{name}, gang of {gang}, {work_h:g} h of work", found))
    return "\n\n".join(parts)


def _ratios(done: Sequence[Outcome], optima: Sequence[float]) -> list[tuple[float, bool]]:
    return [(each.usd / best, each.finished) for each, best in zip(done, optima, strict=True)]


def _sweep_table(title: str, found: dict[str, list[list[tuple[float, bool]]]]) -> str:
    head = ["policy", *(f"{ratio:g}" for ratio in RATIOS), "mean", "p95", "worst", "missed"]
    rows = [head, ["---"] * len(head)]
    for policy, columns in found.items():
        flat = np.array([ratio for column in columns for ratio, _ in column])
        missed = sum(not finished for column in columns for _, finished in column)
        means = [f"{np.mean([ratio for ratio, _ in column]):.2f}" for column in columns]
        total = [f"{flat.mean():.3f}", f"{np.quantile(flat, 0.95):.2f}", f"{flat.max():.2f}", str(missed)]
        rows.append([policy, *means, *total])
    return f"**{title}**\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows)


def makers() -> dict[str, Callable[[], TickPolicy]]:
    """A new policy by name: the baselines and the product's."""
    return dict(BASELINES) | {online.NAME: online.make}


def references(every: int) -> list[Reference]:
    """The published runs on the product's windows."""
    with (SHARED / "traces" / "reference_results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[::every]
    traces: dict[str, Trace] = {row["file"]: load(SHARED / "traces" / row["file"]) for row in rows}
    runs = []
    for row in rows:
        trace = traces[row["file"]]
        work, deadline, overhead, size = (
            float(row[key]) for key in ("work_h", "deadline_h", "restart_overhead_h", "checkpoint_gb")
        )
        task = Task.of(work, deadline, overhead, size, trace.tick_ms)
        window = trace.window(int(row["start_tick"]), task.ticks, zones=row["zones"].split(), gang=int(row["gang"]))
        runs.append(Reference(row, task, window))
    return runs


@dataclass(frozen=True, slots=True)
class Line:
    """One policy on the reference runs; `family` has its cost over the optimum for each family of runs."""

    policy: str
    mean: float
    p95: float
    worst: float
    missed: int
    family: dict[str, float]


def reference_claims(runs: Sequence[Reference]) -> tuple[list[Claim], list[Line]]:
    """Compare the recomputed optimum and baselines with the published costs, and every policy with the optimum."""
    optima = [optimum(run.task, run.window).usd for run in runs]
    published = np.array([float(run.row["optimum_usd"]) for run in runs])
    claims = [Claim("optimum, run by run", _off(optima, published), "%", 0.5)]
    lines = []
    nearest = math.inf
    for name, make in makers().items():
        done = [play(make(), run.task, run.window) for run in runs]
        nearest = min(nearest, *(each.usd / best for each, best in zip(done, optima, strict=True) if each.finished))
        lines.append(line_of(name, runs, done, optima))
        usd = [each.usd for each in done]
        if name == "on-demand":
            claims.append(Claim("on-demand, run by run", _off(usd, _column(runs, "on_demand_usd")), "%", 0.1))
        elif name in PUBLISHED:
            theirs = _column(runs, PUBLISHED[name])
            claims.append(Claim(f"{name}, mean", abs(sum(usd) / theirs.sum() - 1) * 100, "%", 2.0))
    lines.append(line_of("static-in-hindsight", runs, [hindsight(run.task, run.window) for run in runs], optima))
    lines += [_published(f"published: {name}", runs, column) for name, column in PUBLISHED.items()]
    claims.append(Claim("cheapest run of any policy over its optimum", nearest, "x", 1 - 1e-9, least=True))
    ours = next(line for line in lines if line.policy == online.NAME)
    claims.append(Claim(f"{online.NAME}: missed deadlines", ours.missed, "runs", 0.0))
    claims.append(Claim(f"{online.NAME}: cost over optimum, mean", ours.mean, "x"))
    return claims, lines


def _off(ours: Sequence[float], theirs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The largest difference, in percent."""
    return float(np.abs(np.array(ours) / theirs - 1).max() * 100)


def _column(runs: Sequence[Reference], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([float(run.row[name]) for run in runs])


def line_of(name: str, runs: Sequence[Reference], done: Sequence[Outcome], optima: Sequence[float]) -> Line:
    usd = [each.usd for each in done]
    missed = sum(not each.finished for each in done)
    return _summary(name, runs, usd, optima, missed)


def _published(name: str, runs: Sequence[Reference], column: str) -> Line:
    return _summary(name, runs, _column(runs, column).tolist(), _column(runs, "optimum_usd").tolist(), 0)


def _summary(name: str, runs: Sequence[Reference], usd: Sequence[float], optima: Sequence[float], missed: int) -> Line:
    """The mean over cells of (cost over all starts of the cell / the optimum's cost)."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for run, cost, best in zip(runs, usd, optima, strict=True):
        cell = cells.setdefault(run.cell, [0.0, 0.0])
        cell[0] += cost
        cell[1] += best
    families: dict[str, list[float]] = {}
    for key, (cost, best) in cells.items():
        families.setdefault(key[0], []).append(cost / best)
    ratios = np.array(usd) / np.array(optima)
    return Line(
        name,
        float(np.mean([cost / best for cost, best in cells.values()])),
        float(np.quantile(ratios, 0.95)),
        float(ratios.max()),
        missed,
        {family: float(np.mean(found)) for family, found in families.items()},
    )


def beside(lines: Sequence[Line]) -> None:
    """A table of all policies."""
    table = Table("policy", "mean", "p95", "worst", "missed", title="Cost over the optimum")
    for line in lines:
        table.add_row(line.policy, f"{line.mean:.3f}", f"{line.p95:.2f}", f"{line.worst:.2f}", str(line.missed))
    Console().print(table)


def markdown(lines: Sequence[Line]) -> str:
    """The same, for each family of runs."""
    families = list(lines[0].family)
    head = ["policy", "mean", "p95", "worst", "missed", *families]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        cells = [line.policy, f"{line.mean:.3f}", f"{line.p95:.2f}", f"{line.worst:.2f}", str(line.missed)]
        rows.append([*cells, *(f"{line.family[family]:.3f}" for family in families)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
