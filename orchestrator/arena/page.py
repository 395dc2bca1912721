"""Page: the arena's results: a table, distributions of cost, time and misses, and a timeline per run (price,
availability, the job's place). One self-contained HTML file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from orchestrator.arena.protocol import ON_DEMAND
from orchestrator.arena.results import Backtest
from orchestrator.arena.runner import Played
from orchestrator.arena.ticks import Outcome
from orchestrator.formats.html.markup import Html, element, table
from orchestrator.formats.html.style import STYLE
from orchestrator.formats.html.svg import LEFT, PALETTE, RIGHT, WIDTH, Scale, bar, figure, label, line, path
from providers.money import format_usd

TIMELINES = 24
T = TypeVar("T")

_LANE, _AXIS = 20.0, 24.0
_WIDE = 190.0  # space for the names of policies and zones


def page(view: Backtest, played: Sequence[Played]) -> str:
    """A complete HTML document. Only the first TIMELINES runs get a timeline; the page says how many."""
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        element("title", f"Back-test: {view.name}"),
        element("style", Html(STYLE)),
    )
    body = element("body", element("header", *_header(view)), element("main", *_sections(view, played)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(view: Backtest) -> Iterable[Html]:
    yield element("h1", f"Back-test: {view.name}")
    words = f"{view.runs} runs on recorded markets, with the same starts for every policy. Amounts are means per run."
    yield element("p", words, class_="muted")
    if view.filled_ticks:
        yield element("p", f"{view.filled_ticks} ticks in these runs were not recorded and have been filled in.")
    if view.assumed_runs:
        words = f"{view.assumed_runs} runs have recorded prices only; capacity is assumed."
        yield element("p", words, class_="simulated")
    figures = [
        ("on-demand only", format_usd(view.on_demand_nano_usd)),
        ("clairvoyant optimum", format_usd(view.optimum_nano_usd)),
    ]
    yield element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in figures))


def _sections(view: Backtest, played: Sequence[Played]) -> Iterable[Html]:
    yield element("h2", "Policies")
    head = ("policy", "cost", "over optimum", "p95", "worst", "missed", f"against {view.reference}", "95% interval")
    rows = [
        (
            row.policy,
            format_usd(row.cost_nano_usd),
            *("-" if value is None else f"{value:.3f}" for value in (row.over_optimum, row.p95, row.worst)),
            row.missed,
            format_usd(row.difference_nano_usd),
            f"{format_usd(row.difference_low_nano_usd)} to {format_usd(row.difference_high_nano_usd)}",
        )
        for row in view.policies
        if row.runs
    ]
    yield table(
        "Cost over the optimum is a mean over cells; p95 and worst are over runs", head, rows, numbers=range(1, 8)
    )
    for failure in view.failures:
        yield element("p", failure, class_="simulated")
    yield element("h2", "Where each dollar was saved")
    split = (
        "policy",
        "by spot",
        "by zone",
        "by GPU",
        "by moving",
        "egress",
        "moves",
        "preemptions",
        "useful",
        "time / work",
    )
    sources = [
        (
            row.policy,
            format_usd(row.saved_by_spot_nano_usd),
            format_usd(row.saved_by_zone_nano_usd),
            format_usd(row.saved_by_gpu_nano_usd),
            format_usd(row.saved_by_moving_nano_usd),
            format_usd(row.egress_nano_usd),
            f"{row.moves:.1f}",
            f"{row.preemptions:.1f}",
            f"{row.useful:.0%}",
            f"{row.stretch:.2f}",
        )
        for row in view.policies
        if row.runs
    ]
    yield table(
        "The first four columns add up to the saving against on-demand only", split, sources, numbers=range(1, 10)
    )
    yield element("h2", "Distributions")
    yield element("p", "Each mark is a run, hollow if it missed its deadline; the bar is the median.", class_="muted")
    labels = [row.policy for row in view.policies]
    for number, (title, of) in enumerate((("cost over the optimum", _cost), ("time over work", _time))):
        yield _strips(title, labels, played, of, f"d{number}")
    yield element("h2", "Runs")
    shown = played[:TIMELINES]
    words = f"The first {len(shown)} of {len(played)} runs." if len(shown) < len(played) else ""
    key = "Top: when each zone was up, with its price as a line. Bottom: where each policy ran (framed: on-demand)."
    yield element("p", f"{words} {key}".strip(), class_="muted")
    for number, run in enumerate(shown):
        case = run.case
        summary = element("summary", f"{case.trace.title}, {case.job.label}, from tick {case.start}")
        yield element("details", summary, _timeline(run, labels, f"t{number}"))


def _cost(run: Played, outcome: Outcome) -> float:
    return outcome.usd / run.optimum.usd


def _time(run: Played, outcome: Outcome) -> float:
    return outcome.ticks_used * run.window.tick_ms / 3_600_000 / run.case.job.work_h


def _strips(
    title: str, labels: Sequence[str], played: Sequence[Played], of: Callable[[Played, Outcome], float], number: str
) -> Html:
    """A lane per policy with a mark per run (hollow: missed) and a bar at the median."""
    points = {
        name: [(of(run, run.outcomes[name]), run.outcomes[name].finished) for run in played if name in run.outcomes]
        for name in labels
    }
    values = [value for lane in points.values() for value, _ in lane] or [1.0]
    scale = Scale(min(1.0, *values), max(*values, 1.01), LEFT + _WIDE / 2, WIDTH - RIGHT)
    height = _LANE * len(labels) + _AXIS
    marks: list[object] = []
    for value in scale.ticks(8):
        marks += [line(scale(value), 0, scale(value), height - _AXIS, "grid")]
        marks += [label(scale(value), height - 6, f"{value:g}", anchor="middle")]
    for index, name in enumerate(labels):
        y = index * _LANE
        marks.append(label(0, y + 14, name, class_="name"))
        for value, finished in points[name]:
            color = PALETTE[0] if finished else PALETTE[5]
            marks.append(
                element(
                    "circle",
                    element("title", f"{value:.3f}{'' if finished else ', missed'}"),
                    cx=scale(value),
                    cy=y + 10,
                    r=3.0,
                    style=f"fill:{color if finished else 'none'};stroke:{color};opacity:.6",
                )
            )
        if points[name]:
            middle = scale(float(np.median([value for value, _ in points[name]])))
            marks.append(line(middle, y + 2, middle, y + 18, "axis"))
    return figure(title, f"{title}, a mark per run and policy", height, *marks, number=number)


def _timeline(run: Played, labels: Sequence[str], number: str) -> Html:
    """The capacity and price of each zone, and below them where each policy ran (framed: on-demand)."""
    window = run.window
    hours = window.tick_ms / 3_600_000
    scale = Scale(0, window.ticks, _WIDE, WIDTH - RIGHT)
    colors = {zone: PALETTE[i % len(PALETTE)] for i, zone in enumerate(window.zones)}
    lanes = len(window.zones) + len(labels)
    height = _LANE * lanes + _AXIS
    top = float(window.spot.max())
    marks: list[object] = []
    for index, zone in enumerate(window.zones):
        y = index * _LANE
        marks.append(label(0, y + 14, f"{zone} up, price", class_="name"))
        for begin, end, _ in _stretches(window.up[index].tolist()):
            words = f"{zone} up, hours {begin * hours:.1f} to {end * hours:.1f}"
            marks.append(bar(scale(begin), y + 3, scale(end) - scale(begin), 13, colors[zone], words, "starting"))
        prices = [(begin, end, price) for begin, end, price in _stretches(window.spot[index].tolist())]
        corners = [
            (scale(x), y + 17 - 14 * price / top) for begin, end, price in prices for x in (float(begin), float(end))
        ]
        marks.append(path(corners, colors[zone], f"{zone}: {window.spot[index].min():.4f} to {top:.4f} US$/h at most"))
    for index, name in enumerate(labels):
        y = (len(window.zones) + index) * _LANE
        marks.append(label(0, y + 14, name, class_="name"))
        if name not in run.outcomes:
            continue
        for begin, end, place in _stretches(list(run.outcomes[name].track)):
            if place is None:
                continue
            zone = window.zones[place[0]]
            words = f"{name}: {place[1]} in {zone}, hours {begin * hours:.1f} to {end * hours:.1f}"
            kind = "demand" if place[1] == ON_DEMAND else None
            marks.append(bar(scale(begin), y + 3, scale(end) - scale(begin), 13, colors[zone], words, kind))
    clock = Scale(0, window.ticks * hours, _WIDE, WIDTH - RIGHT)
    for value in clock.ticks(6):
        marks.append(label(clock(value), height - 6, f"{value:g} h", anchor="middle"))
    title = f"{run.case.job.label}: optimum ${run.optimum.usd:.2f}, on demand ${run.on_demand.usd:.2f}"
    return figure(title, "Capacity and price by zone, and where each policy ran", height, *marks, number=number)


def _stretches(values: Sequence[T]) -> Iterable[tuple[int, int, T]]:
    """Runs of equal values as (begin, end, value); False is left out."""
    begin = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[begin]:
            if values[begin] is not False:
                yield begin, index, values[begin]
            begin = index
