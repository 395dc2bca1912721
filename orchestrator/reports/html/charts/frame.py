"""The frame of a chart: scales, grid lines and labels around a drawing of 1000 x 1000 units that fills its area.

The drawing stretches with the page while its lines keep their width, so that text stays readable on a phone without a
script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.formats.html.markup import Html, element, join

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Scale:
    """Converts data to the units of the drawing, 0 to 1000."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        """The position of a value."""
        span = self.high - self.low
        return 500.0 if span == 0 else 1000.0 * (value - self.low) / span


def dollars(value: float) -> str:
    """An amount with three significant digits, and with cents below ten dollars."""
    if value >= 999.5 or value == 0:
        return f"${value:,.0f}"
    text = f"{value:.3g}" if value >= 0.0001 else f"{value:.{2 - math.floor(math.log10(value))}f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}" if part or value < 10 else f"${whole}"


def round_ticks(high: float, count: int = 4, low: float = 0.0) -> list[float]:
    """About `count` round values from `low` to `high`."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10 ** math.floor(math.log10(span / count))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(start_ms: int, end_ms: int, count: int = 6, least_ms: int = 0) -> list[tuple[int, str]]:
    """(time, label) of about `count` round times, in UTC, at least `least_ms` apart."""
    span = max(1, end_ms - start_ms)
    steps = [HOUR_MS * n for n in (1, 2, 3, 6, 12)] + [DAY_MS * n for n in (1, 2, 3, 7, 14, 30, 91, 365, 3650)]
    step = next((each for each in steps if span / each <= count and each >= least_ms), 36500 * DAY_MS)
    if span < HOUR_MS * 2 and not least_ms:
        step = max(60_000, span // count // 60_000 * 60_000)
    at = (start_ms // step + 1) * step
    found = []
    while at < end_ms:
        moment = datetime.fromtimestamp(at / 1000, UTC)
        form = "%H:%M" if step < DAY_MS else "%-d %b" if step < 300 * DAY_MS else "%Y"
        if step < DAY_MS and moment.hour == 0 and moment.minute == 0:
            form = "%-d %b"
        found.append((at, moment.strftime(form)))
        at += step
    return found


def time_axis(across: Scale, start_ms: int, end_ms: int, count: int = 7) -> list[tuple[float, Html]]:
    """(position, label) of about `count` round times, in UTC; a script may show them in local time."""
    found = []
    for at, word in time_ticks(start_ms, end_ms, count):
        moment = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        form = "clock" if ":" in word else "date"
        found.append((across(at), element("time", word, datetime=moment, data_axis=form)))
    return found


def midnight_before(at_ms: int) -> int:
    """The beginning of the UTC day."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return round((moment + timedelta(0)).timestamp() * 1000)


def plot(
    title: str,
    description: str,
    marks: Sequence[object],
    *,
    height: int,
    y: Sequence[tuple[float, str]] = (),
    lanes: Sequence[tuple[float, str]] = (),
    x: Sequence[tuple[float, str]] = (),
    overlay: Sequence[object] = (),
) -> Html:
    """A drawing in its frame. `y` and `x` are (position in 0 to 1000, label), y from the top; `lanes` name rows."""
    grid = [
        element("line", x1=0, x2=1000, y1=round(at, 1), y2=round(at, 1), class_="grid") for at, _ in y if 0 <= at < 999
    ]
    svg = element(
        "svg",
        element("title", description),
        *grid,
        *marks,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {description}",
    )
    widest = max((label for _, label in (*y, *lanes)), key=len, default="")
    labels = [element("span", widest, class_="w lane" if lanes else "w", aria_hidden="true")]
    labels += [element("span", label, style=f"bottom:{100 - at / 10:.2f}%") for at, label in y]
    labels += [
        element("span", label, class_="lane", title=label, style=f"bottom:{100 - at / 10:.2f}%") for at, label in lanes
    ]
    below = [
        element("span", label, class_=_edge(at, number), style=f"left:{at / 10:.2f}%")
        for number, (at, label) in enumerate(x)
    ]
    return element(
        "div",
        element("div", join(labels), class_="y", style=f"height:{height}px"),
        element("div", svg, *overlay, class_="area", style=f"height:{height}px"),
        element("div", join(below), class_="x") if below else "",
        class_="plot",
    )


def _edge(at: float, number: int) -> str | None:
    names = ["first"] * (at < 30) + ["last"] * (at > 970) + ["odd"] * (number % 2)
    return " ".join(names) or None


def bar(x: float, y: float, width: float, height: float, color: str, title: str) -> Html:
    """A rectangle in units of the drawing, with a tooltip."""
    return element(
        "rect",
        element("title", title),
        x=float(x),
        y=float(y),
        width=max(float(width), 1.2),
        height=max(float(height), 0.0),
        class_=color,
    )


def steps(points: Sequence[tuple[float, float]], end: float, color: str, title: str) -> Html:
    """A step line, which keeps each value until the next one."""
    path = []
    for number, (x, y) in enumerate(points):
        path.append(f"M{x:.1f},{y:.1f}" if number == 0 else f"H{x:.1f}V{y:.1f}")
    path.append(f"H{end:.1f}")
    return element("path", element("title", title), d="".join(path), class_=f"ln {color}")


def line(points: Sequence[tuple[float, float]], color: str, title: str) -> Html:
    """A line through points."""
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", element("title", title), points=drawn, class_=f"ln {color}")


def dot(x: float, y: float, color: str, title: str) -> Html:
    """A round mark with a tooltip. It is a line of zero length, whose round ends do not stretch with the drawing."""
    return element("path", element("title", title), d=f"M{x:.1f},{y:.1f}h.01", class_=f"ln dot {color}")


def key(entries: Sequence[tuple[str, str]]) -> Html:
    """The legend: (color class, name)."""
    return element("div", *(element("span", element("i", class_=c), name) for c, name in entries), class_="key")


def figure(caption: str, *content: object) -> Html:
    """A chart with its caption."""
    return element("figure", element("figcaption", caption), *content)


def value_scale(
    values: Sequence[float], words: Callable[[float], str] = dollars
) -> tuple[float, list[tuple[float, str]]]:
    """The top of a scale from 0, and its labels as (position from the top, text)."""
    top = max([*values, 0.0]) * 1.06 or 1.0
    return top, [(1000 - 1000 * tick / top, words(tick)) for tick in round_ticks(top)]
