"""Charts of the market: prices over time, prices by zone and day, and runs that moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import floor, log10

from orchestrator.formats.html.markup import Html, element
from orchestrator.reports.frontier import FrontierView
from orchestrator.reports.html.charts.frame import (
    DAY_MS,
    Scale,
    bar,
    dollars,
    dot,
    figure,
    key,
    line,
    plot,
    steps,
    time_axis,
    time_ticks,
    value_scale,
)
from orchestrator.reports.html.figures import machine
from orchestrator.reports.market import UNITS, Heat, MarketView, lowest
from orchestrator.reports.moves import MoveList
from providers.money import NANO_USD
from providers.offer import provider_of, short_zone

LANE_PX = 26
FRONTIER_PX = 260


def history(view: MarketView) -> Html | None:
    """The price of each chosen offer over time; None without prices."""
    drawn = [each for each in view.series if each.points]
    if not drawn:
        return None
    start = min(each.points[0][0] for each in drawn)
    end = max(each.points[-1][0] for each in drawn)
    across = Scale(start, end)
    top, labels = value_scale([value / NANO_USD for each in drawn for _, value in each.points])
    up = Scale(top, 0)
    marks, names = [], []
    for number, each in enumerate(drawn, 1):
        color = f"c{(number - 1) % 6 + 1}"
        low, high = (dollars(pick(v for _, v in each.points) / NANO_USD) for pick in (min, max))
        said = f"{machine(each.offer_id)}: {low} to {high}"
        corners = [(across(at), up(value / NANO_USD)) for at, value in each.points]
        marks.append(steps(corners, 1000.0, color, said))
        names.append((color, f"{provider_of(each.offer_id)} {machine(each.offer_id)}"))
    x = time_axis(across, start, end, 8)
    title = f"Price over time, in dollars per {UNITS[view.unit]}"
    return figure(
        title, plot(title, "; ".join(name for _, name in names), marks, height=240, y=labels, x=x), key(names)
    )


def frontier(view: FrontierView) -> Html | None:
    """Price against speed, both on logarithmic scales: a dot for each kind of machine, and the frontier as a line; None
    with fewer than two kinds."""
    if len(view.rows) < 2:
        return None
    across = _powers([each.speed for each in view.rows])
    up = _powers([each.nano_usd_per_hour / NANO_USD for each in view.rows], below=0.12)  # room for names
    marks, corners, words = [], list[tuple[float, float]](), []
    for each in view.rows:
        x, y = across(log10(each.speed)), 1000 - up(log10(each.nano_usd_per_hour / NANO_USD))
        said = (
            f"{each.gpu_count} x {each.gpu}, {machine(each.offer_id)}: {dollars(each.nano_usd_per_hour / NANO_USD)}/h"
        )
        color = f"c{2 if each.spot else 1}" if each.best else "c7"
        marks.append(dot(x, y, color, said))
        if each.best:
            corners.append((x, y))
            side = f"left:{x / 10:.2f}%" if x < 800 else f"right:{100 - x / 10:.2f}%"
            style = f"{side};top:{y / 1000 * FRONTIER_PX + 6:.0f}px"
            words.append(element("span", f"{each.gpu_count} x {each.gpu}", class_="t hide-small", style=style))
    stairs = [point for before, after in pairwise(corners) for point in (before, (before[0], after[1]))]
    path = line([*stairs, *corners[-1:]], "c7", "the frontier")
    unit = "steps/s" if view.speed_of == "steps" else "TFLOP/s"
    title = f"Price per machine hour against speed in {unit}; the line joins machines that no other beats in both"
    said = f"{len(view.rows)} kinds of machines, {len(corners)} of them on the frontier"
    x_ticks = [(across(power), f"{10**power:,g}") for power in _whole(across)]
    y_ticks = [(1000 - up(power), dollars(10**power)) for power in _whole(up)]
    kinds = {(each.best, each.spot) for each in view.rows}
    names = [("c2", "cheapest at its speed, spot")] if (True, True) in kinds else []
    names += [("c1", "cheapest at its speed, on demand")] if (True, False) in kinds else []
    names += [("c7", "another at least as fast costs less")] if {(False, True), (False, False)} & kinds else []
    return figure(
        title, plot(title, said, [path, *marks], height=FRONTIER_PX, y=y_ticks, x=x_ticks, overlay=words), key(names)
    )


def _powers(values: Sequence[float], *, below: float = 0.06) -> Scale:
    """A logarithmic scale with margins."""
    low, high = log10(min(values)), log10(max(values))
    return Scale(low - below * (high - low) - 0.04, high + 0.06 * (high - low) + 0.04)


def _whole(scale: Scale) -> list[float]:
    """The values 1, 2 and 5 times a power of ten that are on a scale."""
    tens = range(floor(scale.low), floor(scale.high) + 1)
    return [power for ten in tens for of in (1, 2, 5) if scale.low <= (power := ten + log10(of)) <= scale.high]


def heat(of: Heat, unit: str) -> Html | None:
    """A row per zone and a cell per day, darker if it costs more; None without daily prices."""
    rows = [(zone, row) for zone, row in zip(of.zones, of.values, strict=True) if any(v is not None for v in row)]
    if not rows:
        return None
    known = sorted(value for _, row in rows for value in row if value is not None)
    low, high = known[0], known[-1]
    marks = []
    wide, tall = 1000 / len(of.days), 1000 / len(rows)
    for lane, (zone, row) in enumerate(rows):
        for column, value in enumerate(row):
            if value is None:
                continue
            share = (value - low) / (high - low) if high > low else 0.0
            day = datetime.fromtimestamp(of.days[column] / 1000, UTC).strftime("%-d %b")
            cell = element(
                "rect",
                element("title", f"{zone}, {day}: {dollars(value / NANO_USD)}/{unit}"),
                x=round(column * wide, 2),
                y=round(lane * tall + tall * 0.06, 2),
                width=round(wide * 0.94, 2),
                height=round(tall * 0.88, 2),
                style=f"fill:var(--c1);opacity:{0.12 + 0.88 * share:.2f}",
            )
            marks.append(cell)
    lanes = [(lane * tall + tall / 2, zone) for lane, (zone, _) in enumerate(rows)]
    start, end = of.days[0], of.days[-1] + DAY_MS
    x = [(1000 * (at - start) / (end - start), word) for at, word in time_ticks(start - 1, end, 8)]
    span = f"{dollars(low / NANO_USD)} (pale) to {dollars(high / NANO_USD)} (strong)"
    title = f"Mean spot price by zone and UTC day: {span} per {unit}"
    words = f"{len(rows)} zones, {len(of.days)} days"
    return figure(title, plot(title, words, marks, height=LANE_PX * len(rows), lanes=lanes, x=x))


def cheapest(of: Heat, unit: str) -> Html | None:
    """The lowest price of each day as a bar in the color of its cloud; None without daily prices."""
    days = lowest(of)
    if not days:
        return None
    clouds = sorted({zone.partition("/")[0] for _, zone, _ in days})
    top, labels = value_scale([value / NANO_USD for _, _, value in days])
    start, end = of.days[0], of.days[-1] + DAY_MS
    across, wide, marks = Scale(start, end), 1000 / len(of.days), []
    for at, zone, value in days:
        tall = 1000 * value / NANO_USD / top
        day = datetime.fromtimestamp(at / 1000, UTC).strftime("%-d %b")
        said = f"{day}: {zone}, {dollars(value / NANO_USD)}/{unit}"
        color = f"c{clouds.index(zone.partition('/')[0]) % 6 + 1}"
        marks.append(bar(across(at) + wide * 0.03, 1000 - tall, wide * 0.94, tall, color, said))
    x = [(across(at), word) for at, word in time_ticks(start - 1, end, 8)]
    title = f"Lowest mean spot price of a zone by UTC day, in dollars per {unit}"
    words = f"{len(days)} days"
    names = [(f"c{number % 6 + 1}", cloud) for number, cloud in enumerate(clouds)]
    return figure(title, plot(title, words, marks, height=150, y=labels, x=x), key(names))


def gantt(view: MoveList, most: int = 14) -> Html | None:
    """The runs of the jobs that moved most recently, a lane per job and a color per cloud; None without runs."""
    jobs = list(dict.fromkeys((each.migration.job_id, each.job_name) for each in view.moves))[:most]
    lanes = {job_id: number for number, (job_id, _) in enumerate(jobs)}
    runs = [
        run
        for run in view.runs
        if run.job_id in lanes and run.billed_from_ms is not None and (run.billed_to_ms or view.at_ms) > view.from_ms
    ]
    if not runs:
        return None
    start = max(view.from_ms, min(run.billed_from_ms or 0 for run in runs))
    end = max(run.billed_to_ms or view.at_ms for run in runs)
    across = Scale(start, max(end, start + 60_000))
    clouds = sorted({provider_of(run.offer_id) for run in runs})
    reasons = {each.migration.target_run_id: each.migration.reason for each in view.moves}
    tall = 1000 / len(lanes)
    marks = []
    for run in runs:
        begin, stop = across(max(start, run.billed_from_ms or 0)), across(run.billed_to_ms or view.at_ms)
        color = f"c{clouds.index(provider_of(run.offer_id)) % 6 + 1}"
        said = f"{short_zone(run.offer_id)}: {reasons.get(run.id, 'before')}; ended: {run.end or 'still running'}"
        marks.append(
            bar(begin, lanes[run.job_id] * tall + tall * 0.18, max(1.5, stop - begin - 1.2), tall * 0.64, color, said)
        )
    named = [(lanes[job_id] * tall + tall / 2, name) for job_id, name in jobs]
    x = time_axis(across, start, end)
    title = "Where the most recently moved jobs ran; each bar is a run on one machine"
    words = f"{len(runs)} runs of {len(lanes)} jobs"
    made = plot(title, words, marks, height=LANE_PX * len(lanes), lanes=named, x=x)
    return figure(title, made, key([(f"c{n % 6 + 1}", cloud) for n, cloud in enumerate(clouds)]))


def drawable(view: MarketView) -> dict[str, object]:
    """The series for the zoom script: a common grid of times, and a column per offer (dollars; None: unknown)."""
    series = [each for each in view.series if each.points]
    times = sorted({at for each in series for at, _ in each.points})
    return {
        "unit": UNITS[view.unit],
        "times": [at / 1000 for at in times],
        "names": [f"{provider_of(each.offer_id)} {machine(each.offer_id)}" for each in series],
        "offers": [each.offer_id for each in series],
        "values": [_column(each.points, times) for each in series],
    }


def _column(points: Sequence[tuple[int, float]], times: Sequence[int]) -> list[float | None]:
    column: list[float | None] = []
    place, value = 0, None
    for at in times:
        while place < len(points) and points[place][0] <= at:
            value = float(f"{points[place][1] / NANO_USD:.6g}")
            place += 1
        column.append(value)
    return column
