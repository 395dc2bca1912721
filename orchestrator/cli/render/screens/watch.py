"""The live view as text: jobs, the prices of their offers as sparklines, and the latest events, on one screen."""

from __future__ import annotations

from orchestrator.cli.render.screens.jobs import QUEUE, late_jobs, queue_rows
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    blocks,
    capacity,
    clean,
    clipped,
    instant,
    machine,
    moment,
    note_simulated,
    rate,
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
    """The whole view; older events are left out to fit the height of the screen."""
    jobs = view.jobs[:MOST_JOBS]
    hidden = len(view.jobs) - len(jobs)
    head = f"{instant(view.at_ms)}   live: {sum(job.finished_at_ms is None for job in view.jobs)}"
    head += "+" if view.more else ""
    head += f", ended: {view.ended}" if view.ended else ""
    head += f"   paid: {amount(sum(job.paid_nano_usd for job in view.jobs))}"
    top = blocks(
        screen(head, "bold"),
        screen(f"cannot read the store: {clean(view.trouble)}", "red") if view.trouble else "",
        screen(view.to_go_on, "yellow"),
        " ",
        table(QUEUE, queue_rows(jobs), screen) if jobs else "no live jobs",
        screen(f"{hidden} more: tradewind queue", "dim") if hidden else "",
        screen(late_jobs(jobs), "yellow"),
        _prices(view, screen),
    )
    foot = screen(note_simulated(view.simulated), "dim")
    room = None
    if screen.height is not None:
        room = max(0, screen.height - top.count("\n") - 1 - (2 if foot else 1) - 1)
    return blocks(top, *_events(view, screen, room), foot)


def _prices(view: WatchView, screen: Screen) -> str:
    if not view.prices:
        return ""
    rows = [
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
    return blocks(" ", table(PRICES, rows, screen)) if rows else ""


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
