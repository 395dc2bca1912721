"""The live view as text: jobs, the prices of their offers as sparklines, and the latest events, on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.render.screens.jobs import QUEUE, job_reasons, late_jobs, queue_rows
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    blocks,
    capacity,
    clean,
    clipped,
    fitted,
    instant,
    machine,
    moment,
    note_simulated,
    rate,
    rows,
    where,
)
from orchestrator.cli.watching import WatchView
from orchestrator.model import Event
from orchestrator.prices.views import PriceSeries
from orchestrator.services.views import JobView

LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # blocks of 1/8 to 8/8 height
SPARKS = 24
MOST_JOBS = 10
PRICES = (
    Column("offer in use"),
    Column("machine", 3),
    Column("type", 2),
    numbers("price"),
    Column("last 24 h"),
    numbers("low", 1),
    numbers("high", 1),
)


def watch(view: WatchView, screen: Screen) -> str:
    """The whole view. What does not fit the height of the screen is left out: first older events, then prices; of the
    reasons, those that fit are whole, and the rest are counted."""
    jobs = view.jobs[:MOST_JOBS]
    hidden = len(view.jobs) - len(jobs)
    head = f"{instant(view.at_ms)}   live: {sum(job.finished_at_ms is None for job in view.jobs)}"
    head += "+" if view.more else ""
    head += f", ended: {view.ended}" if view.ended else ""
    head += f"   paid: {amount(sum(job.paid_nano_usd for job in view.jobs))}"
    foot = screen(note_simulated(view.simulated), "dim")
    top = blocks(
        screen(head, "bold"),
        screen(f"cannot read the store: {clean(view.trouble)}", "red") if view.trouble else "",
        screen(view.to_go_on, "yellow"),
        " ",
        table(QUEUE, queue_rows(jobs, screen), screen) if jobs else "no live jobs",
        screen(f"{hidden} more: tradewind queue", "dim") if hidden else "",
        screen(late_jobs(jobs), "yellow"),
    )
    top = blocks(top, screen(_reasons(jobs, screen, _room(screen, top, foot)), "yellow"))
    prices, room = _prices(view, screen), _room(screen, top, foot)
    if room is None or _height(prices, screen) <= room:
        top = blocks(top, prices)
    room = _room(screen, top, foot)
    return blocks(top, *_events(view, screen, None if room is None else max(0, room - 1)), foot)


def _height(text: str, screen: Screen) -> int:
    return rows(fitted(text, screen.limit), screen.limit) if text else 0


def _room(screen: Screen, top: str, foot: str) -> int | None:
    """The lines between `top` and `foot`, with one to spare; None: unlimited."""
    if screen.height is None:
        return None
    return max(0, screen.height - _height(top, screen) - _height(foot, screen) - 1)


def _reasons(jobs: Sequence[JobView], screen: Screen, room: int | None) -> str:
    """Why jobs wait, are paused or need attention: as many as fit, each of them whole."""
    found = job_reasons(jobs, screen)
    shown = list(found)
    while shown and room is not None and _height("\n".join(shown), screen) + (len(shown) < len(found)) > room:
        shown.pop()
    hidden = len(found) - len(shown)
    return "\n".join([*shown, *[f"{_number(hidden)} not fit here: tradewind queue"] * (hidden > 0)])


def _number(reasons: int) -> str:
    return "1 reason does" if reasons == 1 else f"{reasons} reasons do"


def _prices(view: WatchView, screen: Screen) -> str:
    if not view.prices:
        return ""
    offers = [
        (
            where(series.offer_id),
            machine(series.offer_id),
            capacity(series.offer_id),
            rate(series.points[-1][2]),
            sparkline(series, view.prices_from_ms, view.prices_to_ms),
            rate(min(price for _, _, price in series.points)),
            rate(max(price for _, _, price in series.points)),
        )
        for series in view.prices
        if series.points
    ]
    return blocks(" ", table(PRICES, offers, screen)) if offers else ""


def sparkline(series: PriceSeries, from_ms: int, to_ms: int, width: int = SPARKS) -> str:
    """The price at the end of each of `width` equal parts of the period; spaces before the first known price."""
    drawn = []
    prices = [price for _, _, price in series.points]
    low, high = min(prices), max(prices)
    for part in range(1, width + 1):
        until_ms = from_ms + (to_ms - from_ms) * part // width
        known = [price for effective_ms, _, price in series.points if effective_ms <= until_ms]
        if not known:
            drawn.append(" ")
        elif high == low:
            drawn.append(LEVELS[3])
        else:
            drawn.append(LEVELS[(known[-1] - low) * (len(LEVELS) - 1) // (high - low)])
    return "".join(drawn)


def _events(view: WatchView, screen: Screen, room: int | None) -> list[str]:
    """The newest events that fit, one per line."""
    names = {job_id: f"{clean(name)}: " for job_id, name in view.names.items()}
    shown = view.events if room is None else view.events[max(0, len(view.events) - room) :] if room else ()
    lines = [
        clipped(f"{moment(event.at_ms)}  {names.get(event.job_id or '', '')}{clean(event.message)}", screen.limit)
        for event in shown
    ]
    return [" ", *lines] if lines else []


def job_line(job: JobView) -> str:
    """One job on one line, for a log."""
    share = f" {job.percent_done}" if job.percent_done else f" step {job.step}"
    place = f" on {job.zone} at {rate(job.nano_usd_per_hour)}" if job.zone is not None else ""
    return f"{clean(job.name)} {job.state}{share}{place}, {amount(job.paid_nano_usd)} paid"


def event_line(event: Event, name: str) -> str:
    """One event of a job on one line, for a log."""
    return f"{moment(event.at_ms)}  {clean(name)}  {event.kind}  {clean(event.message)}"
