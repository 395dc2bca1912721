"""Offers as text: the simulated ones and the real ones apart, groups, and what a job makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.render.text import (
    HOW_TO_KNOW,
    Paint,
    blocks,
    clean,
    money,
    note_simulated,
    number,
    rate,
    ratio,
    span,
    table,
)
from orchestrator.services.offers.views import OfferList, OfferRow


def offers(view: OfferList, paint: Paint) -> str:
    if view.groups:
        return blocks(_groups(view, paint), _notes(view, paint))
    if not view.offers:
        return "no offer matches"
    parts: list[str] = []
    for simulated in (True, False):
        rows = [row for row in view.offers if row.simulated is simulated]
        if rows:
            parts += [" ", _table(rows, paint)] if parts else [_table(rows, paint)]
    return blocks(*parts, _notes(view, paint))


def _table(rows: Sequence[OfferRow], paint: Paint) -> str:
    head: tuple[str, ...]
    if any(row.relative_speed is not None for row in rows):
        head = ("offer", "gpu", "price", "speed", "5%-95%", "age")
        return table(head, [_unmeasured(row) for row in rows], paint, right=[2, 3, 4, 5])
    for_job = any(row.nano_usd_per_step is not None for row in rows)
    head = ("offer", "gpu", "vcpu", "memory", "price", "age", "source")
    right = [2, 3, 4, 5]
    if for_job:
        head = ("offer", "gpu", "price", "$/1k steps", "steps/s", "time", "cost", "p5-p95", "age")
        right = [2, 3, 4, 5, 6, 7, 8]
    return table(head, [_for_job(row) if for_job else _row(row) for row in rows], paint, right=right)


def _row(row: OfferRow) -> tuple[str, ...]:
    return (
        row.id,
        _gpu(row),
        str(row.vcpu or "-"),
        f"{row.memory_bytes / 1e9:.0f} GB" if row.memory_bytes else "-",
        rate(row.nano_usd_per_hour),
        span(row.age_s),
        row.source,
    )


def _for_job(row: OfferRow) -> tuple[str, ...]:
    interval = "-"
    if row.cost_low_nano_usd is not None:
        interval = f"{money(row.cost_low_nano_usd)}-{money(row.cost_high_nano_usd)}"
    return (
        row.id,
        _gpu(row),
        rate(row.nano_usd_per_hour),
        "-" if row.nano_usd_per_step is None else money(round(row.nano_usd_per_step * 1000), 4),
        number(row.steps_per_s),
        span(row.duration_s),
        money(row.cost_nano_usd),
        interval,
        span(row.age_s),
    )


def _unmeasured(row: OfferRow) -> tuple[str, ...]:
    reported = row.relative_speed
    interval = "-" if reported is None else f"{number(reported.low, 2)}-{number(reported.high, 2)}"
    return (row.id, _gpu(row), rate(row.nano_usd_per_hour), ratio(reported), interval, span(row.age_s))


def _gpu(row: OfferRow) -> str:
    return "cpu" if row.gpu is None else f"{row.gpu_count}x{row.gpu}"


def _groups(view: OfferList, paint: Paint) -> str:
    rows = [(group.name, str(group.count), *_of_group(group.best, view.job)) for group in view.groups]
    head: tuple[str, ...] = ("", "offers", "cheapest", "gpu", "vcpu", "memory", "price", "age")
    if any(group.best.relative_speed is not None for group in view.groups):
        head = ("", "offers", "best", "gpu", "price", "speed", "5%-95%", "age")
    elif view.job is not None:
        head = ("", "offers", "best", "gpu", "price", "$/1k steps", "steps/s", "time", "cost", "p5-p95", "age")
    return table(head, rows, paint, right=[1, *range(4, len(head))])


def _of_group(best: OfferRow, job: str | None) -> tuple[str, ...]:
    if best.relative_speed is not None:
        return _unmeasured(best)
    return _row(best)[:6] if job is None else _for_job(best)


def _notes(view: OfferList, paint: Paint) -> str:
    hidden = view.count - len(view.offers) if not view.groups else 0
    unfit = ", ".join(f"{count} by {topic}" for topic, count in view.unfit)
    clouds = ", ".join(view.not_enabled)
    shown = [*view.offers, *(group.best for group in view.groups)]
    notes = [
        f"... {hidden} more: --limit {view.count} shows all" if hidden > 0 else "",
        f"ranked for {clean(view.job)} as its plan ranks them; speed: {view.throughput_source}" if view.job else "",
        HOW_TO_KNOW if any(row.relative_speed is not None for row in shown) else "",
        f"left out for {clean(view.job)}: {unfit}" if view.job and unfit else "",
        f"{clouds}: not enabled here; prices as collected, else the catalogue's list prices, as old as shown"
        if clouds
        else "",
        note_simulated(view.simulated, "the prices of `local`" if clouds else "prices and costs"),
    ]
    return "\n".join(paint(note, "dim") for note in notes if note)
