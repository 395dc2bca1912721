"""The chart of a report: what each job paid, and the on-demand cost of the same machine."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.formats.html.markup import Html
from orchestrator.reports.html.charts.frame import bar, figure, key, plot, round_ticks
from orchestrator.reports.html.figures import money_text
from orchestrator.reports.views import ReportView
from providers.money import NANO_USD

LANE_PX = 44
MOST = 40


def costs(view: ReportView, names: Mapping[str, str]) -> Html | None:
    """Two bars per job, at most MOST jobs; None without a compared job. `names`: of each job, by id."""
    cells = [(row, row.against("same_machine")) for row in view.jobs][:MOST]
    highest = max((max(cell.paid_nano_usd, cell.baseline_nano_usd or 0) for _, cell in cells), default=0) / NANO_USD
    if not highest:
        return None
    tall = 1000 / len(cells)
    marks, lanes = [], []
    for lane, (row, cell) in enumerate(cells):
        lanes.append((lane * tall + tall / 2, names[row.job.id]))
        for number, (word, amount) in enumerate((("paid", cell.paid_nano_usd), ("on demand", cell.baseline_nano_usd))):
            if amount is not None:
                title = f"{names[row.job.id]}, {word}: {money_text(amount)}"
                wide = 1000 * max(0, amount) / NANO_USD / (highest * 1.02)
                marks.append(
                    bar(0, (lane + 0.14 + number * 0.37) * tall, wide, tall * 0.34, f"c{3 - 2 * number}", title)
                )
    x = [(1000 * tick / (highest * 1.02), f"${tick:g}") for tick in round_ticks(highest, 5)]
    title = "Paid, and what the same machine would have cost on demand"
    words = "; ".join(f"{names[row.job.id]}: {row.verdict}" for row, _ in cells)
    made = plot(title, words, marks, height=LANE_PX * len(cells), lanes=lanes, x=x)
    return figure(title, made, key([("c3", "paid"), ("c1", "on demand")]))
