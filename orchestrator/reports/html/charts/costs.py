"""The costs by day, stacked by group."""

from __future__ import annotations

from orchestrator.formats.html.markup import Html
from orchestrator.formats.readable import iso, unique_labels
from orchestrator.reports.costs import DRAWN, CostView
from orchestrator.reports.html.charts.frame import DAY_MS, bar, figure, key, plot, time_ticks, value_scale
from orchestrator.reports.html.figures import money_text
from providers.money import NANO_USD


def by_day(view: CostView, height: int = 190) -> Html | None:
    """Stacked bars; None without costs."""
    if not view.days:
        return None
    first, last = view.days[0].start_ms, view.days[-1].start_ms + DAY_MS
    groups = [row.key for row in view.rows[:DRAWN]] if view.group_by not in ("day", "month") else []
    colors = {name: f"c{number}" for number, name in enumerate(groups, 1)} | {"": "c7" if groups else "c1"}
    names = unique_labels((row.key, row.name) for row in view.rows) | {"": "all others" if groups else "spent"}
    sums = [sum(max(0, amount) for _, amount in day.amounts) / NANO_USD for day in view.days]
    top, labels = value_scale(sums)
    width = 1000 * DAY_MS / (last - first)
    marks = []
    for day in view.days:
        below, amounts = 1000.0, dict(day.amounts)
        for name in [*groups, ""]:
            amount = amounts.get(name, 0)
            if amount > 0:
                tall = 1000 * amount / NANO_USD / top
                below -= tall
                title = f"{iso(day.start_ms)[:10]}, {names.get(name, name)}: {money_text(amount)}"
                left = 1000 * (day.start_ms - first) / (last - first) + width * 0.1
                marks.append(bar(left, below, width * 0.8, tall, colors[name], title))
    x = [
        (1000 * (at + DAY_MS / 2 - first) / (last - first), word) for at, word in time_ticks(first - 1, last, 8, DAY_MS)
    ]
    days = "day" if len(view.days) == 1 else "days"
    words = f"{money_text(view.total.amount_nano_usd)} in {len(view.days)} {days} with costs"
    shown = [(colors[name], names[name]) for name in groups]
    if any("" in dict(day.amounts) for day in view.days) and groups:
        shown.append(("c7", "all others"))
    caption = f"Spent by UTC day and {view.group_by}" if groups else "Spent by UTC day"
    chart = plot(caption, words, marks, height=height, y=labels, x=[each for each in x if each[0] < 1000])
    return figure(caption, chart, key(shown) if len(shown) > 1 else "")
