"""docs/migration.svg: one simulated day, with prices above and the job below (scripts.migration_story)."""

from __future__ import annotations

from orchestrator.formats.html.markup import Html, element, join
from orchestrator.formats.html.svg import PALETTE, Scale, label, line
from orchestrator.model import Run
from providers.money import MS_PER_HOUR, NANO_USD, format_usd
from providers.offer import Offer
from scripts.migration_story import ON_DEMAND, Story, play

WIDTH, HEIGHT = 480.0, 376.0  # narrow, with large letters, so that it is readable on a phone
LEFT, RIGHT = 36.0, 8.0
TOP, FLOOR = 44.0, 200.0  # of the prices
LANE, LANE_END = 234.0, 262.0  # of the job
TOP_PRICE = 3.5
STYLE = """
text{font:13px system-ui,sans-serif;fill:#1c2024}.muted{fill:#5b6470}.title{font-weight:600;font-size:15px}
.grid{stroke:#dfe3e8}.thin{fill:none;stroke-width:1.4;opacity:.6}.thick{fill:none;stroke-width:3.6}
.in{fill:#fff;stroke:#000a;stroke-width:2px;paint-order:stroke;font-weight:600}
.mark{stroke:#1c2024;stroke-dasharray:3 3}.dot{fill:#1c2024}
.number{fill:#fff;font-weight:600}
"""


def migration_picture() -> str:
    """The SVG file's text. Deterministic."""
    story = play()
    across = Scale(story.begin_ms, story.end_ms, LEFT, WIDTH - RIGHT)
    up = Scale(0.0, TOP_PRICE, FLOOR, TOP)
    colors = dict(zip(story.paths, PALETTE, strict=False)) | {ON_DEMAND: "#8a93a0"}
    words = "One job moves twice: when its price rises, and when its machine is taken away. Simulated prices."
    drawn = element(
        "svg",
        element("title", words),
        element("style", Html(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, rx=10, fill="#f7f8fa"),
        label(12, 24, "One training job, two moves", class_="title"),
        label(WIDTH - 12, 24, "prices are simulated", anchor="end", class_="muted"),
        _price_axis(up),
        *(_price_line(story, offer, across, up, colors[offer]) for offer in story.paths),
        *(_lane(story, run, across, colors) for run in story.runs),
        _hours(story, across),
        *_marks(story, across),
        *_legend(story),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
    )
    return f"{drawn}\n"


def _price_axis(up: Scale) -> Html:
    lines = [line(LEFT, up(dollars), WIDTH - RIGHT, up(dollars), "grid") for dollars in range(4)]
    names = [label(LEFT - 6, up(dollars) + 4, f"${dollars}", anchor="end", class_="muted") for dollars in range(4)]
    return join([*lines, *names])


def _price_line(story: Story, offer: Offer, across: Scale, up: Scale, color: str) -> Html:
    """The offer's price per hour over the day; the line is thick while the job is there."""
    path = story.paths[offer]
    runs = [run for run in story.runs if run.offer_id == offer.id]
    there = [
        element(
            "polyline",
            points=_corners(path, *_trained(story, run), across, up),
            style=f"stroke:{color}",
            class_="thick",
        )
        for run in runs
    ]
    whole = element(
        "polyline",
        points=_corners(path, story.begin_ms, story.end_ms, across, up),
        style=f"stroke:{color}",
        class_="thin",
    )
    below = offer is min(story.paths, key=lambda each: story.paths[each][0][1])
    name = element(
        "text",
        _name(offer),
        x=(LEFT + WIDTH - RIGHT) / 2 + 20 if offer is ON_DEMAND else LEFT + 6,  # between the numbers
        y=up(path[0][1] / NANO_USD) + (20 if below else -8),
        text_anchor="middle" if offer is ON_DEMAND else "start",
        style=f"fill:{color};font-weight:600",
    )
    return join([whole, *there, name])


def _corners(path: list[tuple[int, int]], begin_ms: int, end_ms: int, across: Scale, up: Scale) -> str:
    """The corners of a step curve: a price stays the same between its changes."""
    before = [price for at_ms, price in path if at_ms <= begin_ms]
    steps = [(begin_ms, before[-1] if before else path[0][1])]
    steps += [(at_ms, price) for at_ms, price in path if begin_ms < at_ms < end_ms]
    points = []
    for (at_ms, price), until_ms in zip(steps, [*(at_ms for at_ms, _ in steps[1:]), end_ms], strict=True):
        y = up(price / NANO_USD)
        points += [f"{across(at_ms):.1f},{y:.1f}", f"{across(until_ms):.1f},{y:.1f}"]
    return " ".join(points)


def _lane(story: Story, run: Run, across: Scale, colors: dict[Offer, str]) -> Html:
    """A bar for the time of training on a machine, with its region and the steps done there."""
    (offer,) = (each for each in story.paths if each.id == run.offer_id)
    begin, end = (across(at_ms) for at_ms in _trained(story, run))
    middle = (begin + end) / 2
    bar = element("rect", x=begin, y=LANE, width=end - begin, height=LANE_END - LANE, rx=3, fill=colors[offer])
    return join([bar, label(middle, LANE + 18, offer.region.title(), anchor="middle", class_="in")])


def _hours(story: Story, across: Scale) -> Html:
    hours = range(0, (story.end_ms - story.begin_ms) // MS_PER_HOUR + 1)
    names = [
        label(across(story.begin_ms + hour * MS_PER_HOUR), LANE_END + 17, f"{hour} h", anchor="middle", class_="muted")
        for hour in hours
    ]
    return join([label(LEFT, LANE - 8, "the job trains in", class_="muted"), *names])


def _marks(story: Story, across: Scale) -> list[Html]:
    made = []
    for number, run in enumerate(story.runs[1:], 1):
        x = across(run.training_from_ms or 0)
        dot = element("circle", cx=x, cy=TOP - 6, r=9, class_="dot")
        made.append(
            join(
                [
                    line(x, TOP, x, LANE_END, "mark"),
                    dot,
                    label(x, TOP - 1.5, str(number), anchor="middle", class_="number"),
                ]
            )
        )
    return made


def _legend(story: Story) -> list[Html]:
    """The numbered events and the result."""
    lines = []
    for number, (before, stopped_s) in enumerate(zip(story.runs[:-1], story.stops_s, strict=True), 1):
        taken = before.end == "preempted"
        why = "Machine taken away, 2 min notice" if taken else "Price rises: staying costs more than moving"
        stop = f"; training stops for {stopped_s:.0f} s" if taken else ""
        lines.append(f"{number}. {why}{stop}")
    repeated = sum(run.repeated_steps for run in story.runs)
    on_demand = story.reported.total("same_machine").baseline_nano_usd
    assert on_demand is not None
    steps = f"{repeated} steps repeated"
    lines.append(f"{steps}. {format_usd(story.paid_nano_usd, 2)} paid; {format_usd(on_demand, 2)} on demand.")
    return [
        label(12, LANE_END + 50 + 24 * number, words, class_="title" if number == len(lines) - 1 else None)
        for number, words in enumerate(lines)
    ]


def _trained(story: Story, run: Run) -> tuple[int, int]:
    return run.training_from_ms or story.begin_ms, run.training_to_ms or story.end_ms


def _name(offer: Offer) -> str:
    return f"{offer.region.title()}, {'spot' if offer.spot else 'on demand'}"
