"""Prices as text: tables, and a chart drawn by plotext."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    again,
    blocks,
    capacity,
    clean,
    instant,
    machine,
    moment,
    next_page,
    note_simulated,
    rate,
    span,
    where,
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
MOST_DRAWN = 100
"""The largest --limit of a price history."""


def status(view: PriceStatus, screen: Screen) -> str:
    """The age of the prices of each source and region."""
    if not view.regions:
        return "no prices have been collected yet; collect them:\ntradewind prices collect --once"
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
    columns = (
        Column("", state=True),
        Column("source"),
        Column("region"),
        Column("collected (UTC)", 4),
        numbers("age"),
        numbers("offers", 1),
        numbers("flagged", 2),
        Column("why", 5, text=True),
        Column("ignored", 6, text=True),
    )
    failed: dict[tuple[str, str, str], list[PricedRegion]] = {}
    for each in view.regions:
        if each.error is not None:
            failed.setdefault((each.source, clean(each.error), clean(each.hint or "")), []).append(each)
    errors = [
        f"{source} {_where(regions)}: {error}" + (f"\n  hint: {hint}" if hint else "")
        for (source, error, hint), regions in failed.items()
    ]
    errors += [
        f"{each.source} {each.region or 'all'}: the last collection {clean(each.suspect)}; "
        "offers that it does not list keep their prices until another collection agrees"
        for each in view.regions
        if each.suspect and each.error is None
    ]
    flags = [f"{flag.flag}: {clean(flag.subject)}: {clean(flag.detail)}" for flag in view.newest_flags]
    left = f"prices before {instant(view.prices_kept_from_ms)} are in the archive" if view.prices_kept_from_ms else ""
    return blocks(
        table(columns, rows, screen),
        "\n".join(errors),
        "newest flagged prices, not used:\n  " + "\n  ".join(flags) if flags else "",
        left,
        screen(note_simulated(view.simulated, _whose(view)), "dim"),
    )


def _whose(view: PriceStatus) -> str:
    """Which prices are simulated: all, or the prices of some sources."""
    if all(each.simulated for each in view.regions):
        return "prices"
    names = sorted({each.source for each in view.regions if each.simulated})
    return f"the prices of {', '.join(names)}"


def _where(regions: Sequence[PricedRegion]) -> str:
    """Regions with the same failure, and the most consecutive failures of one."""
    named = ", ".join(each.region or "all" for each in regions[:3])
    more = f" and {len(regions) - 3} more" if len(regions) > 3 else ""
    most = max(each.failures for each in regions)
    return named + more + (f" (failed {most} times)" if most > 1 else "")


def history(view: PriceHistory, screen: Screen) -> str:
    """Price series as a chart and a table."""
    drawn = [series for series in view.series if series.points]
    if not drawn:
        return "no prices are known for this period"
    rows = [
        (
            MARKERS[number % len(MARKERS)],
            where(series.offer_id),
            machine(series.offer_id),
            capacity(series.offer_id),
            rate(series.points[-1][2] // max(1, series.gpu_count)),
            rate(min(price for _, _, price in series.points) // max(1, series.gpu_count)),
            rate(max(price for _, _, price in series.points) // max(1, series.gpu_count)),
            str(len(series.points) - (series.points[0][0] < view.from_ms)),
            "" if series.listed else "no longer listed",
            f"{len(series.flags)} flagged" if series.flags else "",
            series.offer_id,
        )
        for number, series in enumerate(drawn)
    ]
    columns = (
        Column(""),
        Column("where"),
        Column("machine", 2),
        Column("type", 1),
        numbers("per GPU, last"),
        numbers("lowest", 3),
        numbers("highest", 3),
        numbers("changes", 4),
        Column("", 5),
        Column("", 6),
        Column("offer", wide=True),
    )
    more = next_page(screen.command, view.next_cursor)
    if view.left_out and "--cursor" not in screen.command and (count := len(drawn) + view.left_out) <= MOST_DRAWN:
        more = f"{view.left_out} more: {again(screen.command, '--limit', count)}"
    others = f"{view.other_market} simulated offers also match: name one, or its --provider"
    return blocks(
        _chart(view, drawn, screen),
        table(columns, rows, screen),
        more,
        others if view.other_market else "",
        screen(note_simulated(view.simulated, "prices"), "dim"),
    )


def _chart(view: PriceHistory, drawn: list[PriceSeries], screen: Screen) -> str:
    """Step lines in USD per GPU-hour; a series ends when its price is no longer known."""
    lines = [_steps(view, series) for series in drawn]
    first, last = min(at[0] for at, _ in lines), max(at[-1] for at, _ in lines)
    if first == last:
        return f"no changes and no polls since {instant(first)[:16]} (to look further back: --since)"
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(screen.width or WIDTH, 160), HEIGHT)
    for number, ((at, prices), series) in enumerate(zip(lines, drawn, strict=True)):
        sign = MARKERS[number % len(MARKERS)]
        plotext.plot(at, prices, marker=sign, label=f"{where(series.offer_id)} {machine(series.offer_id)}"[:40])
    plotext.xlim(first, last)
    ticks = [first + (last - first) * part // 3 for part in range(4)]
    plotext.xticks(ticks, [instant(each)[:16] for each in ticks])
    plotext.ylabel("USD per GPU-hour")
    return str(plotext.uncolorize(str(plotext.build()).rstrip("\n")))


def _steps(view: PriceHistory, series: PriceSeries) -> tuple[list[int], list[float]]:
    end_ms = min(view.to_ms, max(series.known_to_ms or 0, series.points[-1][0]))
    at: list[int] = []
    prices: list[float] = []
    changes = [(max(effective, view.from_ms), price) for effective, _, price in series.points]
    for (start, price), (until, _) in zip(changes, [*changes[1:], (max(end_ms, changes[-1][0]), 0)], strict=True):
        at += [start, until]
        prices += [price / NANO_USD / max(1, series.gpu_count)] * 2
    return at, prices


def change(view: PriceChange, screen: Screen) -> str:
    """One price change."""
    at = moment(view.at_ms) + (" market" if view.simulated else "")
    if view.offer_id is None:
        text = f"{at}  {view.source} {view.region or 'all'}: {clean(view.error or '')}"
        return screen(text, "red")
    before, now = view.before_nano_usd_per_hour, view.nano_usd_per_hour
    share = f"  {(now - before) / before:+.1%}" if before and now is not None else "  new"
    style = "green" if before and now is not None and now < before else "yellow"
    whose = screen(f"  {clean(view.source)}", "dim")
    return f"{at}  {clean(view.offer_id)}  {rate(now)}{screen(share, style)}{whose}"


def polled(view: CollectedRegion, screen: Screen) -> str:
    """The result of polling one region."""
    took = span((view.ended_at_ms - view.started_at_ms) / 1000)
    text = f"{view.source} {view.region or 'all'}: {view.offers} offers, {view.changed} changed, "
    text += f"{view.flagged} flagged, "
    if view.passed:
        why = ", ".join(f"{number} {reason}" for reason, number in view.passed.items())
        text += f"{sum(view.passed.values())} ignored ({why}), "
    text += took
    if view.suspect:
        return clean(text) + screen(f"  suspect: {clean(view.suspect)}", "yellow")
    if view.error is None:
        return clean(text)
    return (
        clean(text) + screen(f"  failed: {clean(view.error)}", "red") + (f" ({clean(view.hint)})" if view.hint else "")
    )


def collection(view: PriceCollection, screen: Screen) -> str:
    """The result of one round of polls."""
    total = f"{len(view.polls)} {'poll' if len(view.polls) == 1 else 'polls'}, "
    total += f"{sum(each.offers for each in view.polls)} offers, "
    total += f"{sum(each.changed for each in view.polls)} prices changed, "
    total += f"{sum(each.flagged for each in view.polls)} rows flagged, {view.failed} failed"
    return blocks(*(polled(each, screen) for each in view.polls), screen(total, "bold"))


def accepted(view: AcceptedPrice, _screen: Screen) -> str:
    """Which price was accepted."""
    was = f"it was flagged {view.flag} (source {clean(view.source)}): {clean(view.detail)}"
    return f"{clean(view.offer_id)}: accepted at {rate(view.nano_usd_per_hour)}\n{was}"


def imported(view: PriceImport, screen: Screen) -> str:
    """What an import of prices added, and each row that it rejected."""
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
    columns = (
        Column("file"),
        numbers("rows"),
        numbers("series", 5),
        Column("from", 3),
        Column("to", 2),
        numbers("gaps", 4),
        numbers("flagged"),
        numbers("bad"),
        Column("", 6, text=True),
    )
    new = (
        f"{view.series} series; new: {view.new_offers} offers, {view.new_prices} prices, {view.new_flags} flagged rows"
    )
    more = view.bad_rows - len(view.problems)
    problems = [clean(each) for each in view.problems] + ([f"... and {more} more bad rows"] if more > 0 else [])
    return blocks(table(columns, rows, screen), screen(new, "bold"), "\n".join(problems))


def exported(view: PriceExport, screen: Screen) -> str:
    """How many prices were exported, and to which file."""
    return f"wrote {screen(clean(view.path), 'bold')}: {view.rows} price changes, {view.size_bytes / 1e6:.1f} MB"


def archived(view: PriceArchive, screen: Screen) -> str:
    """Which months were archived."""
    lines = [f"wrote {clean(each.path)}: {each.rows} price changes" for each in view.months]
    if not lines:
        lines = ["all complete months are already archived"]
    lines.append(f"{view.rolled_up} offers rolled up by day")
    gone = f"{view.prices_removed} prices and {view.polls_removed} collections were removed from the store"
    lines.append(f"{gone}, which is complete from {instant(view.kept_from_ms)} on")
    return "\n".join([*lines[:-1], screen(lines[-1], "bold")])
