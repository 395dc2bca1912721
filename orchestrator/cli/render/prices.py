"""Prices as text: tables, and a chart drawn by plotext."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from orchestrator.cli.render.text import (
    Paint,
    blocks,
    clean,
    instant,
    moment,
    note_simulated,
    rate,
    span,
    table,
)
from orchestrator.prices.views import (
    AcceptedPrice,
    CollectedRegion,
    PriceArchive,
    PriceChange,
    PriceCollection,
    PricedRegion,
    PriceExport,
    PriceHistory,
    PriceImport,
    PriceSeries,
    PriceStatus,
)
from providers.money import NANO_USD

MARKERS = "ox+*#@%&"
WIDTH, HEIGHT = 100, 20


def status(view: PriceStatus, paint: Paint) -> str:
    if not view.regions:
        return "no source was polled yet\nhint: tradewind prices collect --once, or tradewind up"
    rows = [
        (
            "fail" if each.error is not None else "suspect" if each.suspect else "ok",
            each.source,
            each.region or "all",
            moment(each.polled_at_ms) + (" market" if each.simulated else ""),
            "never" if each.age_s is None else span(each.age_s),
            str(each.offers),
            str(sum(each.flags.values())),
            ", ".join(f"{name} {number}" for name, number in each.flags.items()),
            clean(each.passed),
        )
        for each in view.regions
    ]
    head = ("", "source", "region", "polled (UTC)", "age", "offers", "flagged", "why", "passed over")
    failed: dict[tuple[str, str, str], list[PricedRegion]] = {}
    for each in view.regions:
        if each.error is not None:
            failed.setdefault((each.source, clean(each.error), clean(each.hint or "")), []).append(each)
    errors = [
        f"{source} {_where(regions)}: {error}" + (f"\n  hint: {hint}" if hint else "")
        for (source, error, hint), regions in failed.items()
    ]
    errors += [
        f"{each.source} {each.region or 'all'}: the last poll {clean(each.suspect)}: "
        "what it does not name stays as it was until another poll agrees"
        for each in view.regions
        if each.suspect and each.error is None
    ]
    flags = [f"{flag.flag}: {clean(flag.subject)}: {clean(flag.detail)}" for flag in view.newest_flags]
    left = f"prices before {instant(view.prices_kept_from_ms)} are in the archive" if view.prices_kept_from_ms else ""
    return blocks(
        table(head, rows, paint, right=(4, 5, 6), state=0),
        "\n".join(errors),
        "newest flagged rows, not eligible:\n  " + "\n  ".join(flags) if flags else "",
        left,
        paint(note_simulated(view.simulated, _whose(view)), "dim"),
    )


def _whose(view: PriceStatus) -> str:
    """Whose prices are simulated: all, or those of some sources."""
    if all(each.simulated for each in view.regions):
        return "prices"
    names = sorted({each.source for each in view.regions if each.simulated})
    return f"the prices of {', '.join(names)}"


def _where(regions: Sequence[PricedRegion]) -> str:
    """Regions that fail alike, and how often one did in a row."""
    named = ", ".join(each.region or "all" for each in regions[:3])
    more = f" and {len(regions) - 3} more" if len(regions) > 3 else ""
    most = max(each.failures for each in regions)
    return named + more + (f" (failed {most} times)" if most > 1 else "")


def history(view: PriceHistory, paint: Paint) -> str:
    drawn = [series for series in view.series if series.points]
    if not drawn:
        return "no price of it is known for that time"
    rows = [
        (
            MARKERS[number % len(MARKERS)],
            series.offer_id,
            rate(series.points[-1][2] // max(1, series.gpu_count)),
            rate(min(price for _, _, price in series.points) // max(1, series.gpu_count)),
            rate(max(price for _, _, price in series.points) // max(1, series.gpu_count)),
            str(len(series.points) - (series.points[0][0] < view.from_ms)),
            "" if series.listed else "no longer listed",
            f"{len(series.flags)} flagged" if series.flags else "",
        )
        for number, series in enumerate(drawn)
    ]
    head = ("", "offer", "per GPU, last", "lowest", "highest", "changes", "", "")
    more = f"{view.left_out} more match, at higher prices or without one: --limit" if view.left_out else ""
    others = (
        f"simulated offers that match, too: {view.other_market} (name one, or its --provider)"
        if view.other_market
        else ""
    )
    return blocks(
        _chart(view, drawn, paint),
        table(head, rows, paint, right=(2, 3, 4, 5)),
        more,
        others if view.other_market else "",
        paint(note_simulated(view.simulated, "prices"), "dim"),
    )


def _chart(view: PriceHistory, drawn: list[PriceSeries], paint: Paint) -> str:
    """Steps of USD per GPU-hour; a series ends where nothing is known of it any more."""
    size = shutil.get_terminal_size((WIDTH, HEIGHT + 10))
    lines = [_steps(view, series) for series in drawn]
    first, last = min(at[0] for at, _ in lines), max(at[-1] for at, _ in lines)
    if first == last:
        return f"nothing changed and nothing was polled since {instant(first)[:16]} (look further back: --since)"
    import plotext

    plotext.clear_figure()
    plotext.theme("pro" if paint.on else "clear")
    plotext.plotsize(min(size.columns, 160), HEIGHT)
    for number, ((at, prices), series) in enumerate(zip(lines, drawn, strict=True)):
        sign = MARKERS[number % len(MARKERS)]
        label = f"{sign} {series.offer_id}" if paint.on else series.offer_id
        plotext.plot(at, prices, marker="braille" if paint.on else sign, label=label[:60])
    plotext.xlim(first, last)
    ticks = [first + (last - first) * part // 3 for part in range(4)]
    plotext.xticks(ticks, [instant(each)[:16] for each in ticks])
    plotext.ylabel("USD per GPU-hour")
    drawing = str(plotext.build()).rstrip("\n")
    return drawing if paint.on else str(plotext.uncolorize(drawing))


def _steps(view: PriceHistory, series: PriceSeries) -> tuple[list[int], list[float]]:
    end_ms = min(view.to_ms, max(series.known_to_ms or 0, series.points[-1][0]))
    at: list[int] = []
    prices: list[float] = []
    changes = [(max(effective, view.from_ms), price) for effective, _, price in series.points]
    for (start, price), (until, _) in zip(changes, [*changes[1:], (max(end_ms, changes[-1][0]), 0)], strict=True):
        at += [start, until]
        prices += [price / NANO_USD / max(1, series.gpu_count)] * 2
    return at, prices


def change(view: PriceChange, paint: Paint) -> str:
    at = moment(view.at_ms) + (" market" if view.simulated else "")
    if view.offer_id is None:
        text = f"{at}  {view.source} {view.region or 'all'}: {clean(view.error or '')}"
        return paint(text, "red")
    before, now = view.before_nano_usd_per_hour, view.nano_usd_per_hour
    share = f"  {(now - before) / before:+.1%}" if before and now is not None else "  new"
    style = "green" if before and now is not None and now < before else "yellow"
    whose = paint(f"  {clean(view.source)}", "dim")
    return f"{at}  {clean(view.offer_id)}  {rate(now)}{paint(share, style)}{whose}"


def polled(view: CollectedRegion, paint: Paint) -> str:
    took = span((view.ended_at_ms - view.started_at_ms) / 1000)
    text = f"{view.source} {view.region or 'all'}: {view.offers} offers, {view.changed} changed, "
    text += f"{view.flagged} flagged, "
    if view.passed:
        why = ", ".join(f"{number} {reason}" for reason, number in view.passed.items())
        text += f"{sum(view.passed.values())} passed over ({why}), "
    text += took
    if view.suspect:
        return clean(text) + paint(f"  suspect: {clean(view.suspect)}", "yellow")
    if view.error is None:
        return clean(text)
    return (
        clean(text) + paint(f"  failed: {clean(view.error)}", "red") + (f" ({clean(view.hint)})" if view.hint else "")
    )


def collection(view: PriceCollection, paint: Paint) -> str:
    total = f"{len(view.polls)} {'poll' if len(view.polls) == 1 else 'polls'}, "
    total += f"{sum(each.offers for each in view.polls)} offers, "
    total += f"{sum(each.changed for each in view.polls)} prices changed, "
    total += f"{sum(each.flagged for each in view.polls)} rows flagged, {view.failed} failed"
    return blocks(*(polled(each, paint) for each in view.polls), paint(total, "bold"))


def accepted(view: AcceptedPrice, _paint: Paint) -> str:
    was = f"it was flagged {view.flag} of {clean(view.source)}: {clean(view.detail)}"
    return f"{clean(view.offer_id)}: {rate(view.nano_usd_per_hour)} is accepted\n{was}"


def imported(view: PriceImport, paint: Paint) -> str:
    rows = [
        (
            each.path.rpartition("/")[2],
            str(each.rows),
            str(each.series),
            "-" if each.first_ms is None else instant(each.first_ms)[:10],
            "-" if each.last_ms is None else instant(each.last_ms)[:10],
            "-" if each.gaps is None else str(each.gaps),
            str(sum(each.flagged.values())),
            str(each.bad_rows),
            each.skipped or ", ".join(f"{name} {number}" for name, number in each.flagged.items()),
        )
        for each in view.files
    ]
    head = ("file", "rows", "series", "from", "to", "gaps", "flagged", "bad", "")
    new = (
        f"{view.series} series; new: {view.new_offers} offers, {view.new_prices} prices, {view.new_flags} flagged rows"
    )
    more = view.bad_rows - len(view.problems)
    problems = [clean(each) for each in view.problems] + ([f"... and {more} more bad rows"] if more > 0 else [])
    return blocks(table(head, rows, paint, right=(1, 2, 5, 6, 7)), paint(new, "bold"), "\n".join(problems))


def exported(view: PriceExport, paint: Paint) -> str:
    return f"wrote {paint(clean(view.path), 'bold')}: {view.rows} price changes, {view.size_bytes / 1e6:.1f} MB"


def archived(view: PriceArchive, paint: Paint) -> str:
    lines = [f"wrote {clean(each.path)}: {each.rows} price changes" for each in view.months]
    if not lines:
        lines = ["every month that is over is archived already"]
    lines.append(f"{view.rolled_up} offers rolled up by day")
    gone = f"{view.prices_removed} prices and {view.polls_removed} polls left the store"
    lines.append(f"{gone}; it is whole from {instant(view.kept_from_ms)} on")
    return "\n".join([*lines[:-1], paint(lines[-1], "bold")])
