"""Offers as text: rentable offers apart from the others, groups of offers, and the ranking for a job."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    NO_PROVIDER,
    Screen,
    again,
    amount,
    blocks,
    capacity,
    clean,
    machine,
    next_page,
    note_simulated,
    number,
    rate,
    ratio,
    span,
    ways_to_know,
    where,
)
from orchestrator.services.offers.views import PARTS, OfferList, OfferRow
from orchestrator.services.paging import MOST_ROWS

PLACE = (Column("where"), Column("machine", 3), Column("gpu"), Column("type"), numbers("price"))
LISTED = (*PLACE, numbers("vcpu", 5), numbers("memory", 6), numbers("age", 1), Column("source", 7, text=True))
FOR_JOB = (
    *PLACE,
    numbers("$/1k steps"),
    numbers("steps/s", 6),
    numbers("time"),
    numbers("cost"),
    numbers("p5-p95", 2),
    numbers("age", 4),
)
UNMEASURED = (*PLACE, numbers("speed"), numbers("p5-p95", 1), numbers("age", 4))
ID = Column("offer", wide=True)


def offers(view: OfferList, screen: Screen) -> str:
    """The table of offers, or of groups of them."""
    if view.groups:
        return blocks(_groups(view, screen), _notes(view, screen))
    if not view.offers:
        return "no offer matches"
    parts: list[str] = []
    for part in PARTS:
        if rows := [row for row in view.offers if row.part == part]:
            if parts:
                parts += [" ", screen("not enabled here:", "dim")] if part == "elsewhere" else [" "]
            parts.append(_table(rows, view, screen))
    return blocks(*parts, _notes(view, screen))


def _table(rows: Sequence[OfferRow], view: OfferList, screen: Screen) -> str:
    columns = _columns(rows, view)
    return table((*columns, ID), [(*_cells(row, columns), row.id) for row in rows], screen)


def _columns(rows: Sequence[OfferRow], view: OfferList) -> tuple[Column, ...]:
    if any(row.relative_speed is not None for row in rows):
        return UNMEASURED
    return LISTED if view.job is None else FOR_JOB


def _cells(row: OfferRow, columns: tuple[Column, ...]) -> tuple[str, ...]:
    rest = _unmeasured(row) if columns is UNMEASURED else _for_job(row) if columns is FOR_JOB else _listed(row)
    return (where(row.id), machine(row.id), _gpu(row), capacity(row.id), rate(row.nano_usd_per_hour), *rest)


def _listed(row: OfferRow) -> tuple[str, ...]:
    memory = f"{row.memory_bytes / 1e9:.0f} GB" if row.memory_bytes else "-"
    return (str(row.vcpu or "-"), memory, span(row.age_s), row.source)


def _for_job(row: OfferRow) -> tuple[str, ...]:
    interval = "-"
    if row.cost_low_nano_usd is not None:
        interval = "-".join(dict.fromkeys((amount(row.cost_low_nano_usd), amount(row.cost_high_nano_usd))))
    return (
        "-" if row.nano_usd_per_step is None else amount(round(row.nano_usd_per_step * 1000)),
        number(row.steps_per_s),
        span(row.duration_s),
        amount(row.cost_nano_usd),
        interval,
        span(row.age_s),
    )


def _unmeasured(row: OfferRow) -> tuple[str, ...]:
    speed = row.relative_speed
    interval = "-" if speed is None else f"{number(speed.low, 2)}-{number(speed.high, 2)}"
    return (ratio(speed), interval, span(row.age_s))


def _gpu(row: OfferRow) -> str:
    return "cpu" if row.gpu is None else f"{row.gpu_count}x{row.gpu}"


def _groups(view: OfferList, screen: Screen) -> str:
    best = [group.best for group in view.groups]
    columns = _columns(best, view)
    rows = [(group.name, str(group.count), *_cells(group.best, columns), group.best.id) for group in view.groups]
    return table((Column("group"), numbers("offers", 2), *columns, ID), rows, screen)


def _notes(view: OfferList, screen: Screen) -> str:
    hidden = view.count - len(view.offers) if not view.groups else 0
    unfit = ", ".join(f"{count} by {topic}" for topic, count in view.unfit)
    clouds = ", ".join(each for each in view.not_enabled if each not in view.no_provider)
    unrentable = ", ".join(view.no_provider)
    shown = [*view.offers, *(group.best for group in view.groups)]
    simulated = ", ".join(sorted({row.provider for row in shown if row.simulated})) or "some offers"
    job = clean(view.job or "")
    costs = any(row.cost_nano_usd is not None for row in shown)
    more = next_page(screen.command, view.next_cursor)
    if hidden > 0 and screen.command and "--cursor" not in screen.command and view.count <= MOST_ROWS:
        more = f"{hidden} more: {again(screen.command, '--limit', view.count)}"
    notes = [
        more,
        f"ids and all columns: {screen.command} --wide" if screen.command and not screen.wide else "",
        f"ranked for {job}; speed: {view.throughput_source}" if job else "",
        "cost: $/1k steps x steps + start-up, egress and storage" if job and costs else "",
        ways_to_know(screen.file) if any(row.relative_speed is not None for row in shown) else "",
        f"left out for {job}: {unfit}" if job and unfit else "",
        f"not enabled here: {clouds} (collected or list prices)" if clouds else "",
        f"Tradewind cannot rent at {unrentable}: {NO_PROVIDER}" if unrentable else "",
        note_simulated(view.simulated, f"prices of {simulated}" if view.not_enabled else "prices and costs"),
    ]
    return "\n".join(screen(note, "dim") for note in notes if note)
