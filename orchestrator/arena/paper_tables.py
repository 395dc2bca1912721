"""Paper tables: the core paper's tables next to the published ones, as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.paper import (
    HONEST_SETS,
    MODELS,
    POLICIES,
    Floats,
    Options,
    honest_costs,
    honest_options,
    paper_costs,
    paper_starts,
    winners,
)
from orchestrator.arena.paper_data import PaperData, read
from orchestrator.model import CHEAPEST, FASTEST, Objective

SHORT = ("A3C", "CycleGAN", "LM", "Recommend.", "ResNet-50", "Transformer")
INTERVALS_H = (1, 2, 3, 6, 12, 24, 72, 168)
DURATIONS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
PAPER_WITHIN, HONEST_WITHIN = 0.01, 0.02

# Published re-analysis under honest rules: static / dynamic ratio to the best us-east-1 1xV100 spot offer at the start.
_HONEST = {
    HONEST_SETS[0]: ((1.00, 1.00),) * 6,
    HONEST_SETS[1]: ((1.00, 1.01),) * 6,
    HONEST_SETS[2]: ((1.72, 1.72), (1.00, 1.01), (1.00, 1.01), (1.32, 1.32), (1.00, 1.01), (1.11, 1.11)),
    HONEST_SETS[3]: ((3.90, 3.90), (1.72, 1.81), (1.94, 2.03), (2.99, 2.99), (1.65, 1.65), (3.19, 3.64)),
}
_SWEEP = {
    "Transformer (batch size 256)": {1: 1.140, 6: 1.140, 24: 1.140, 72: 1.089, 168: 1.047},
    "CycleGAN": {1: 1.053, 6: 1.053, 24: 1.053, 72: 1.020, 168: 1.003},
}
# Gain of moving over staying by job length: the notebook's stored output, and from honest starts.
_CURVE = {
    "A3C": (1.00, 1.00, 1.00, 1.02, 1.05, 1.11, 1.16),
    "ResNet-50 (batch size 128)": (1.00, 1.00, 1.00, 1.00, 1.01, 1.02, 1.05),
    "Transformer (batch size 256)": (1.00, 1.00, 1.02, 1.07, 1.17, 1.28, 1.41),
}
_CURVE_HONEST = {
    "A3C": (1.0,) * 7,
    "ResNet-50 (batch size 128)": (1.0,) * 7,
    "Transformer (batch size 256)": (1.0, 1.0, 1.012, 1.030, 1.066, 1.110, 1.146),
}
_DATA_MOVEMENT = dict(zip(SHORT, (2.74, 1.43, 1.55, 2.30, 1.34, 2.49), strict=True))
_WINNERS = {
    ("AWS", "cheapest"): {"K80": 9, "V100": 17},
    ("AWS", "fastest"): {"V100": 26},
    ("AWS", "cost x time"): {"K80": 1, "V100": 25},
    ("AWS+Azure", "cheapest"): {"K80": 8, "P100": 15, "V100": 3},
    ("AWS+Azure", "fastest"): {"P100": 1, "V100": 25},
    ("AWS+Azure", "cost x time"): {"K80": 4, "P100": 4, "V100": 18},
}
_AZURE_BEGINS_MS = round(datetime(2020, 2, 24, tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure: the recomputed one, and the published one if there is one."""

    row: str
    column: str
    value: float
    published: float | None


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table. `within` is the allowed distance from published figures; None: shown for comparison only."""

    title: str
    within: float | None
    cells: tuple[Cell, ...]

    @property
    def worst(self) -> float:
        """The largest distance from a published figure."""
        return max((abs(cell.value - cell.published) for cell in self.cells if cell.published is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class PaperTables:
    """All tables; `refused_runs` counts runs that would have outlasted the log of 2020."""

    kind: ClassVar[str] = "backtest-paper"

    tables: tuple[PaperTable, ...]
    refused_runs: int


def paper_tables(folder: Path) -> PaperTables:
    """Recompute every table from the data in `folder`. Raises SpecError, MissingExtraError."""
    data = read(folder)
    honest, sweep, refused_runs = _honest(data)
    tables = (*_as_printed(data), honest, sweep, _winners(data))
    return PaperTables(tables, refused_runs)


def _as_printed(data: PaperData) -> Iterator[PaperTable]:
    """The four cost reduction tables, and the gain of moving by job length (the mean of the starts' ratios)."""
    for region in ("us-east-1", "us-west-2"):
        curves = region == "us-east-1"
        costs = paper_costs(data, region, DURATIONS if curves else (4, 8))
        for days in (4, 8):
            cells = []
            for policy in POLICIES:
                for model, short in zip(MODELS, SHORT, strict=True):
                    ratio = float(costs[days, model, "baseline"].mean() / costs[days, model, policy].mean())
                    known = data.ratios.get((region, days, model, policy))
                    if (region, days, policy) == ("us-east-1", 4, POLICIES[-1]):
                        known = _DATA_MOVEMENT[short]
                    cells.append(Cell(policy, short, ratio, known))
            yield PaperTable(f"Cost reduction as printed, {region}, {days} days", PAPER_WITHIN, tuple(cells))
        if curves:
            complete = np.array(paper_starts(data, region)) >= _AZURE_BEGINS_MS
            for title, starts, curve in (
                ("Moving over staying by days on one V100, 30 starts as printed", complete | True, _CURVE),
                ("The same, only starts covered by Azure's log", complete, _CURVE_HONEST),
            ):
                yield PaperTable(f"{title}, {region}", PAPER_WITHIN, tuple(_curve(costs, starts, curve)))


def _curve(
    costs: dict[tuple[float, str, str], Floats], starts: NDArray[np.bool_], known: Mapping[str, tuple[float, ...]]
) -> Iterator[Cell]:
    for model, row in known.items():
        for days, published in zip(DURATIONS, row, strict=True):
            gain = costs[days, model, "multi_cloud"] / costs[days, model, "preemption"]
            yield Cell(model.partition(" (")[0], f"{days:g}", float(gain[starts].mean()), published)


def _honest(data: PaperData) -> tuple[PaperTable, PaperTable, int]:
    last_ms = round(datetime(2020, 3, 24, tzinfo=UTC).timestamp() * 1000)
    sets = honest_options(data, _AZURE_BEGINS_MS, last_ms)
    starts = range(0, 17 * 24, 24)
    base = float(honest_costs(data, sets[HONEST_SETS[0]], MODELS[:1], starts, 96, 0)[MODELS[0]].mean())
    cells, outlasting = [], 0
    for name, options in sets.items():
        kept = honest_costs(data, options, MODELS, starts, 96, 0)
        moved = honest_costs(data, options, MODELS, starts, 96, 24)
        outlasting += sum(int(np.isnan(run).sum()) for run in (*kept.values(), *moved.values()))
        for model, short, known in zip(MODELS, SHORT, _HONEST[name], strict=True):
            for kind, costs, published in (("static", kept, known[0]), ("dynamic", moved, known[1])):
                cells.append(Cell(f"{name}, {kind}", short, base / float(np.nanmean(costs[model])), published))
    honest = PaperTable("Honest rules: 17 starts, hourly, whole one-GPU machines", HONEST_WITHIN, tuple(cells))
    return honest, _sweep(data, sets[HONEST_SETS[3]], starts), outlasting


def _sweep(data: PaperData, options: Options, starts: Sequence[int]) -> PaperTable:
    """The gain over the static choice, by the interval between decisions."""
    cells = []
    for model, known in _SWEEP.items():
        kept = float(np.nanmean(honest_costs(data, options, [model], starts, 96, 0)[model]))
        for every in INTERVALS_H:
            moved = float(np.nanmean(honest_costs(data, options, [model], starts, 96, every)[model]))
            cells.append(Cell(model.partition(" (")[0], f"{every} h", kept / moved, known.get(every)))
    return PaperTable("Honest rules: gain by re-decision interval", HONEST_WITHIN, tuple(cells))


def _winners(data: PaperData) -> PaperTable:
    day_ms = round(datetime(2020, 3, 1, tzinfo=UTC).timestamp() * 1000)
    azure = [series for series in data.azure if series.gpus == 1]
    cells = []
    for cloud, series in (("AWS", list(data.aws)), ("AWS+Azure", [*data.aws, *azure])):
        for name, objective in (("cheapest", CHEAPEST), ("fastest", FASTEST), ("cost x time", Objective(0.5, 0.5))):
            counts = winners(data, series, day_ms, objective)
            for gpu in ("K80", "P100", "V100"):
                known = _WINNERS[cloud, name].get(gpu, 0)
                cells.append(Cell(f"{cloud}, {name}", gpu, counts.get(gpu, 0), known))
    return PaperTable("Which GPU wins, of 26 job types, 2020-03-01", 0.0, tuple(cells))
