"""The charts of one job: where it ran and why, the prices, its loss and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.formats.html.markup import Html, element
from orchestrator.formats.readable import significant
from orchestrator.reports.html.charts.frame import (
    Scale,
    bar,
    dollars,
    figure,
    key,
    line,
    plot,
    round_ticks,
    steps,
    time_axis,
    value_scale,
)
from orchestrator.reports.html.figures import machine, money_text
from orchestrator.reports.job_page import JobPage, Prices, Rival, RunFacts
from orchestrator.reports.views import JobReport, RunCost
from providers.money import NANO_USD
from providers.offer import provider_of, short_zone

LANE_PX = 34


def span_of(row: JobReport, now_ms: int) -> tuple[int, int]:
    """The period from submission to the end of billing, or until now."""
    ends = [each.run.billed_to_ms or now_ms for each in row.runs if each.run.billed_from_ms is not None]
    return row.job.submitted_at_ms, max([*ends, row.job.submitted_at_ms + 60_000])


def timeline(row: JobReport, now_ms: int) -> Html | None:
    """A lane per zone and a bar per run with its reason, lighter until it trains. None without machines."""
    runs = [each for each in row.runs if each.run.billed_from_ms is not None]
    if not runs:
        return None
    start, end = span_of(row, now_ms)
    across = Scale(start, end)
    zones = list(dict.fromkeys(short_zone(each.run.offer_id) for each in runs))
    marks, words, seen = [], [], []
    tall = 1000 / len(zones)
    for each in runs:
        run = each.run
        lane = zones.index(short_zone(run.offer_id))
        begin, stop = across(run.billed_from_ms or start), across(run.billed_to_ms or now_ms)
        trained = across(run.training_from_ms) if run.training_from_ms is not None else stop
        top = lane * tall + tall * 0.16
        color = color_of(run.offer_id, runs)
        said = f"run {each.number} on {run.offer_id}: {each.reason or 'first placement'}, "
        said += f"{money_text(each.cost_nano_usd)}, ended: {run.end or 'still running'}"
        seen.append(said)
        marks.append(bar(begin, top, min(trained, stop) - begin, tall * 0.68, f"{color} soft", f"{said} (starting)"))
        marks.append(bar(trained, top, stop - trained, tall * 0.68, f"{color} tint", said))
        if stop - begin > 70:
            words.append(
                element(
                    "span",
                    f"{each.number} {each.reason}",
                    class_="t in",
                    style=f"left:{trained / 10 + 0.3:.2f}%;width:{max(0.0, (stop - trained) / 10 - 0.5):.2f}%;"
                    f"top:{lane * LANE_PX + 9}px",
                )
            )
    lanes = [(lane * tall + tall / 2, zone.partition("/")[2] or zone) for lane, zone in enumerate(zones)]
    x = time_axis(across, start, end)
    title = "Where it ran, and why it moved"
    made = plot(title, "; ".join(seen), marks, height=LANE_PX * len(zones), lanes=lanes, x=x, overlay=words)
    clouds = list(dict.fromkeys(provider_of(each.run.offer_id) for each in runs))
    names = [(color_of(f"{cloud}/", runs), cloud) for cloud in clouds]
    return figure(title, made, key(names))


def prices_paid(row: JobReport, now_ms: int) -> Html | None:
    """The price of each run in dollars per hour while it was billed; None without prices."""
    return _prices(row, {}, now_ms)


def prices(page: JobPage) -> Html | None:
    """The cost of 1,000 steps on each run's machine while it was billed and, dashed, on the next best offers of the
    decision. If a speed is unknown, dollars per hour."""
    return _prices(page.report, {each.run_id: each for each in page.facts}, page.at_ms)


def _prices(row: JobReport, facts: Mapping[str, RunFacts], now_ms: int) -> Html | None:
    runs = [each for each in row.runs if each.run.billed_from_ms is not None and each.prices]
    if not runs:
        return None
    rates = {each.run.id: _rate(facts.get(each.run.id)) for each in runs}
    per_step = all(rate is not None for rate in rates.values())
    start, end = span_of(row, now_ms)
    across = Scale(start, end)
    own: list[_Line] = [(each, each.run.offer_id, each.prices, _unit(rates[each.run.id], per_step)) for each in runs]
    beaten: list[_Line] = [
        (each, rival.offer_id, rival.prices, _unit(rival.steps_per_s, per_step))
        for each in runs
        for rival in _of(facts.get(each.run.id))
        if rival.prices and (rival.steps_per_s or not per_step)
    ]
    highest = 2.5 * max(price * unit for _, _, points, unit in own for _, price in points)
    shown = [each for each in beaten if min(price * each[3] for _, price in each[2]) <= highest]
    values = [min(highest, price * unit) for _, _, points, unit in (*own, *shown) for _, price in points]
    top, labels = value_scale(values)
    up = Scale(top, 0)
    marks: list[Html] = []
    for each, name, points, unit in (*shown, *own):
        mine = name == each.run.offer_id
        low, high = (dollars(pick(p for _, p in points) * unit) for pick in (min, max))
        said = f"{'' if mine else 'instead of '}run {each.number}, {machine(name)}: {low} to {high}"
        corners = [
            (across(min(max(at, each.run.billed_from_ms or 0), each.run.billed_to_ms or now_ms)), up(price * unit))
            for at, price in points
        ]
        color = color_of(name, runs) if mine else "c7 dash thin"
        marks.append(steps(corners, across(each.run.billed_to_ms or now_ms), color, said))
    x = time_axis(across, start, end)
    title = (
        "Price during each run, in dollars per 1,000 steps"
        if per_step
        else "Price during each run, in dollars per hour"
    )
    words = "; ".join(f"run {each.number} on {machine(each.run.offer_id)}" for each in runs)
    made = plot(title, words, marks, height=150, y=labels, x=x)
    entries = list(dict.fromkeys((color_of(each.run.offer_id, runs), provider_of(each.run.offer_id)) for each in runs))
    return figure(title, made, key(entries + ([("c7", "next best offers of the decision")] if shown else [])))


_Line = tuple[RunCost, str, Prices, float]
"""(run, offer, prices, dollars of the chart per nano-USD and hour)."""


def _rate(facts: RunFacts | None) -> float | None:
    return None if facts is None else facts.planned_steps_per_s or facts.steps_per_s


def _unit(steps_per_s: float | None, per_step: bool) -> float:
    return 1000 / (3600 * steps_per_s) / NANO_USD if per_step and steps_per_s else 1 / NANO_USD


def loss(row: JobReport) -> Html | None:
    """Loss by step, with a mark where each run began; None without losses."""
    if len(row.losses) < 2:
        return None
    values = [value for _, value in row.losses]
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.06
    across, up = Scale(row.losses[0][0], row.losses[-1][0]), Scale(high + room, low - room)
    marks = [line([(across(step), up(value)) for step, value in row.losses], "c1", "loss by step")]
    for each in row.runs:
        if each.number > 1 and each.run.start_step > row.losses[0][0] and each.run.training_from_ms is not None:
            at = across(each.run.start_step)
            marks.append(
                line([(at, 0), (at, 1000)], "c7 dash thin", f"run {each.number} begins at step {each.run.start_step}")
            )
    y = [(up(tick), significant(tick, 3)) for tick in round_ticks(high + room, 4, low - room)]
    x = [(across(tick), f"{tick:,.0f}") for tick in round_ticks(row.losses[-1][0], 5, row.losses[0][0])]
    began, ended = (f"{significant(value, 4)} at step {step}" for step, value in (row.losses[0], row.losses[-1]))
    words = f"from {began} to {ended}"
    return figure(f"Loss by step, {words}", plot("Loss by step", words, marks, height=150, y=y, x=x))


def speed(page: JobPage) -> Html | None:
    """Steps per second of each run; None if no run trained long enough."""
    facts = {each.run_id: each.steps_per_s for each in page.facts}
    known = [(each, rate) for each in page.report.runs if (rate := facts.get(each.run.id)) is not None]
    if not known:
        return None
    start, end = span_of(page.report, page.at_ms)
    across = Scale(start, end)
    top, labels = value_scale([rate for _, rate in known], lambda value: significant(value, 3))
    runs = [each for each, _ in known]
    marks = []
    for each, rate in known:
        begin, stop = across(each.run.training_from_ms or start), across(each.run.training_to_ms or page.at_ms)
        said = f"run {each.number} on {machine(each.run.offer_id)}: {significant(rate, 4)} steps/s"
        marks.append(
            bar(
                begin,
                1000 - 1000 * rate / top,
                stop - begin,
                1000 * rate / top,
                f"{color_of(each.run.offer_id, runs)}",
                said,
            )
        )
    x = time_axis(across, start, end, 5)
    title = "Speed of each run, in steps per second"
    words = "; ".join(f"run {each.number}: {significant(rate, 4)}" for each, rate in known)
    return figure(title, plot(title, words, marks, height=150, y=labels, x=x))


def color_of(offer_id: str, runs: Sequence[RunCost]) -> str:
    """The color of a cloud on this page."""
    clouds = sorted({provider_of(each.run.offer_id) for each in runs})
    name = provider_of(offer_id)
    return f"c{clouds.index(name) % 6 + 1}" if name in clouds else "c7"


def _of(facts: RunFacts | None) -> tuple[Rival, ...]:
    return () if facts is None else facts.beaten
