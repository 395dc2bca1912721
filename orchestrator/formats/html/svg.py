"""Axes, frames and marks of the charts, as static SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.formats.html.markup import Html, element, join
from orchestrator.formats.readable import iso

WIDTH = 960.0
LEFT = 110.0
RIGHT = 16.0
AXIS = 24.0

# Okabe and Ito (2008): distinguishable with any colour vision. Every mark also has a text label.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from data to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel position of a value."""
        span = self.high - self.low
        share = 0.5 if span == 0 else (value - self.low) / span
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values in the range."""
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        step = 10 ** math.floor(math.log10(span / count))
        step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= count)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def time_scale(start_ms: int, end_ms: int) -> Scale:
    """The horizontal scale of a chart between two times in epoch ms."""
    return Scale(start_ms, max(end_ms, start_ms + 1), LEFT, WIDTH - RIGHT)


def figure(title: str, description: str, height: float, *marks: object, number: str) -> Html:
    """A chart with a title and a description for screen readers. `number` makes their ids unique on the page."""
    svg = element(
        "svg",
        element("title", title, id=f"{number}-t"),
        element("desc", description, id=f"{number}-d"),
        *marks,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{number}-t {number}-d",
    )
    return element("figure", svg, element("figcaption", title))


def time_axis(scale: Scale, y: float) -> Html:
    """A horizontal axis with dates and times at height `y`."""
    count = 6
    every = (scale.high - scale.low) / count
    marks = []
    for i in range(count + 1):
        at = int(scale.low + i * every)
        anchor = "start" if i == 0 else "end" if i == count else "middle"
        marks.append(label(scale(at), y + 16, iso(at)[5:16].replace("T", " "), anchor=anchor))
        marks.append(line(scale(at), 4, scale(at), y, "grid"))
    return join([line(scale.start, y, scale.end, y, "axis"), *marks])


def value_axis(scale: Scale, words: Callable[[float], str]) -> Html:
    """A vertical axis with grid lines; `words` formats a value."""
    marks = []
    for value in scale.ticks(4):
        marks.append(line(LEFT, scale(value), WIDTH - RIGHT, scale(value), "grid"))
        marks.append(label(LEFT - 8, scale(value) + 4, words(value), anchor="end"))
    return join(marks)


def label(x: float, y: float, words: str, *, anchor: str = "start", class_: str | None = None) -> Html:
    """A text label at a position in pixels."""
    return element("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A line between two points in pixels."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[float, float]], color: str, title: str) -> Html:
    """A polyline through `points` (pixels), with a tooltip."""
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", element("title", title), points=drawn, style=f"stroke:{color}", class_="line")


def bar(x: float, y: float, width: float, height: float, color: str, title: str, class_: str | None = None) -> Html:
    """A rectangle with a tooltip, at least wide enough to be visible."""
    return element(
        "rect",
        element("title", title),
        x=x,
        y=y,
        width=max(width, 1.5),
        height=height,
        rx=3,
        style=f"fill:{color}",
        class_=class_,
    )
