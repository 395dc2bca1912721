"""The charts of the report: timeline, prices, loss, and cost compared with on-demand."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.formats.html.markup import Html
from orchestrator.formats.html.svg import (
    AXIS,
    LEFT,
    PALETTE,
    RIGHT,
    WIDTH,
    Scale,
    bar,
    figure,
    label,
    path,
    time_axis,
    time_scale,
    value_axis,
)
from orchestrator.formats.readable import iso
from orchestrator.model import Run
from orchestrator.reports.views import JobReport, ReportView, RunCost
from providers.money import NANO_USD, format_usd
from providers.offer import short_zone

LANE = 34.0
LETTER = 6.6  # approximate width of a label's letter in pixels
NAME_LETTERS = 14


def colors(rows: Sequence[JobReport]) -> dict[str, str]:
    """One colour per zone, used in every chart."""
    zones = sorted({short_zone(cost.run.offer_id) for row in rows for cost in row.runs})
    return {zone: PALETTE[i % len(PALETTE)] for i, zone in enumerate(zones)}


def span_of(view: ReportView) -> tuple[int, int]:
    """(start, end) in epoch ms, from the first submission to the last end or to now."""
    starts = [row.job.submitted_at_ms for row in view.jobs]
    ends = [row.job.finished_at_ms or view.at_ms for row in view.jobs]
    ends += [cost.run.billed_to_ms or 0 for row in view.jobs for cost in row.runs]
    return min(starts, default=view.at_ms), max(ends, default=view.at_ms)


def timeline(view: ReportView) -> Html:
    """One lane per job, one bar per run: pale during start-up, solid during training."""
    scale, zone_color = time_scale(*span_of(view)), colors(view.jobs)
    marks: list[object] = []
    height = LANE * len(view.jobs) + AXIS + 4
    marks.append(time_axis(scale, height - AXIS))
    for lane, row in enumerate(view.jobs):
        y = lane * LANE + 6
        marks.append(label(LEFT - 8, y + 16, _short(row.job.name, NAME_LETTERS), anchor="end", class_="name"))
        for cost in row.runs:
            marks += _run_bars(cost, scale, y, zone_color[short_zone(cost.run.offer_id)], view.at_ms)
        for cost in row.runs:  # drawn above the bars of later runs that overlap
            marks += _run_label(cost, scale, y, view.at_ms)
    title = "Where each job ran"
    words = "; ".join(
        f"{row.job.name}: " + (", then ".join(_where(cost) for cost in row.runs) or "no runs") for row in view.jobs
    )
    return figure(title, words, height, *marks, number="timeline")


def _run_bars(cost: RunCost, scale: Scale, y: float, color: str, now_ms: int) -> list[Html]:
    run = cost.run
    begin, until, end = _instants(run, now_ms)
    title = f"run {cost.number} on {run.offer_id}, {iso(begin)} to {iso(end)}: {run.end or run.state}, {cost.reason}"
    kind = "demand" if run.offer_id.endswith("/on_demand") else None
    marks = [bar(scale(begin), y, scale(until) - scale(begin), LANE - 12, color, title, "starting")]
    if end > until:
        marks.append(bar(scale(until), y, scale(end) - scale(until), LANE - 12, color, title, kind))
    return marks


def _run_label(cost: RunCost, scale: Scale, y: float, now_ms: int) -> list[Html]:
    _, until, end = _instants(cost.run, now_ms)
    words = f"{cost.number} {_where(cost)}"
    room = int((scale(end) - scale(until) - 8) / LETTER)
    if room < 1:
        return []
    return [label(scale(until) + 4, y + 15, words if room >= len(words) else str(cost.number), class_="in")]


def _instants(run: Run, now_ms: int) -> tuple[int, int, int]:
    """The start, the start of training (the end, if it never trained) and the end, in epoch ms."""
    begin = run.billed_from_ms or run.created_at_ms
    end = run.billed_to_ms or run.training_to_ms or now_ms
    trained = run.training_from_ms
    return begin, max(begin, min(trained, end)) if trained is not None else end, end


def prices(row: JobReport, view: ReportView, number: int) -> Html | None:
    """The hourly price of each run while it was billed; None without prices."""
    runs = [cost for cost in row.runs if cost.prices and cost.run.billed_from_ms is not None]
    if not runs:
        return None
    scale, zone_color = time_scale(*span_of(view)), colors(view.jobs)
    highest = max(price for cost in runs for _, price in cost.prices) / NANO_USD
    up = Scale(0.0, highest * 1.15 or 1.0, 150.0, 8.0)
    marks: list[object] = [value_axis(up, lambda value: f"${value:.3g}/h"), time_axis(scale, 150.0)]
    for cost in runs:
        points = _steps(cost, view.at_ms)
        zone = short_zone(cost.run.offer_id)
        drawn = [(scale(at), up(price / NANO_USD)) for at, price in points]
        marks.append(path(drawn, zone_color[zone], f"run {cost.number} on {cost.run.offer_id}"))
        if drawn[-1][0] - drawn[0][0] > 40:
            marks.append(label(drawn[0][0] + 3, drawn[0][1] - 5, f"{cost.number} {_where(cost)}"))
    title = f"{row.job.name}: price of each run"
    words = "; ".join(f"run {c.number}: {_price_range(c)}" for c in runs)
    return figure(title, words, 150.0 + AXIS, *marks, number=f"price-{number}")


def _steps(cost: RunCost, now_ms: int) -> list[tuple[int, int]]:
    """The corners of the piecewise constant price, from the start to the end of billing."""
    start = cost.run.billed_from_ms or 0
    end = max(cost.run.billed_to_ms or now_ms, start)
    points: list[tuple[int, int]] = []
    for at, price in cost.prices:
        here = min(max(at, start), end)
        if points:
            points.append((here, points[-1][1]))
        points.append((here, price))
    points.append((end, points[-1][1]))
    return points


def loss(row: JobReport, number: int) -> Html | None:
    """Loss by step, with a mark at the start of each run; None without losses."""
    if len(row.losses) < 2:
        return None
    values = [value for _, value in row.losses]
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.06
    across = Scale(row.losses[0][0], row.losses[-1][0], LEFT, WIDTH - RIGHT)
    up = Scale(low - room, high + room, 150.0, 8.0)
    marks: list[object] = [value_axis(up, lambda value: f"{value:.4g}")]
    marks += [label(across(step), 166.0, f"{step:.0f}", anchor="middle") for step in across.ticks(8)]
    drawn = [(across(step), up(value)) for step, value in row.losses]
    marks.append(path(drawn, PALETTE[0], f"loss of {row.job.name} by step"))
    for cost in row.runs:
        if cost.run.start_step > row.losses[0][0] and cost.run.training_from_ms is not None:
            x = across(cost.run.start_step)
            marks.append(
                path([(x, 8.0), (x, 150.0)], PALETTE[5], f"run {cost.number} begins at step {cost.run.start_step}")
            )
            inside = x + 3 + NAME_LETTERS * LETTER < WIDTH
            marks.append(
                label(x + (3 if inside else -3), 18.0, f"run {cost.number}", anchor="start" if inside else "end")
            )
    title = f"{row.job.name}: loss by step"
    words = f"from {values[0]:.6g} at step {row.losses[0][0]} to {values[-1]:.6g} at step {row.losses[-1][0]}"
    return figure(title, words, 150.0 + AXIS, *marks, number=f"loss-{number}")


def costs(view: ReportView) -> Html:
    """The cost of each job, beside that of the same machine on demand."""
    cells = [row.against("same_machine") for row in view.jobs]
    highest = max((max(cell.paid_nano_usd, cell.baseline_nano_usd or 0) for cell in cells), default=1)
    across = Scale(0, highest or 1, LEFT, WIDTH - RIGHT - 190)
    marks: list[object] = []
    for lane, (row, cell) in enumerate(zip(view.jobs, cells, strict=True)):
        y = lane * 50.0 + 6
        marks.append(label(LEFT - 8, y + 22, _short(row.job.name, NAME_LETTERS), anchor="end", class_="name"))
        so_far = " so far" if row.provisional else ""
        for i, (words, amount) in enumerate((("paid", cell.paid_nano_usd), ("on demand", cell.baseline_nano_usd))):
            top = y + i * 20
            if amount is None:
                marks.append(label(LEFT + 4, top + 13, f"left out: {cell.left_out}"))
                continue
            title = f"{row.job.name} {words}{so_far}: {format_usd(amount, 6)}"
            marks.append(bar(LEFT, top, max(across(amount) - LEFT, 0.0), 16, PALETTE[2 - 2 * i], title))
            marks.append(label(max(across(amount), LEFT) + 6, top + 13, f"{words}{so_far} {format_usd(amount, 4)}"))
    words = "; ".join(f"{row.job.name}: {row.verdict}" for row in view.jobs)
    title = "Paid, and what the same machine would have cost on demand"
    return figure(title, words, len(view.jobs) * 50.0 + 8, *marks, number="costs")


def _where(cost: RunCost) -> str:
    kind = "on-demand" if cost.run.offer_id.endswith("/on_demand") else "spot"
    return f"{short_zone(cost.run.offer_id)} {kind}"


def _price_range(cost: RunCost) -> str:
    paid = [price for _, price in cost.prices]
    return f"{format_usd(min(paid), 4)} to {format_usd(max(paid), 4)} an hour on {cost.run.offer_id}"


def _short(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 3] + "..."
