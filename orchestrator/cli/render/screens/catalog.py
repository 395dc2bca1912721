"""The catalogue as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, blocks, clean
from orchestrator.formats.readable import span
from orchestrator.services.catalog.views import CatalogUpdate, CatalogVerdict, CatalogView
from providers.money import format_usd


def catalog(view: CatalogView, screen: Screen) -> str:
    """The catalogue: its age, sources and counts."""
    clouds = [
        (
            row.provider,
            str(row.offers),
            str(row.spot),
            str(row.regions),
            str(row.instance_types),
            _age(row.newest_days),
            _age(row.oldest_days),
            _short(row.gpus),
        )
        for row in view.clouds
    ]
    head = (
        Column("provider"),
        numbers("offers"),
        numbers("spot", 3),
        numbers("regions", 4),
        numbers("types", 5),
        numbers("newest", 1),
        numbers("oldest", 2),
        Column("GPUs", text=True),
    )
    sources = [
        (
            row.publisher,
            str(row.offers),
            str(row.flagged),
            row.oldest,
            row.newest,
            _age(row.age_days),
            row.licence,
        )
        for row in view.sources
        if row.offers or row.flagged
    ]
    source_head = (
        Column("price list"),
        numbers("offers"),
        numbers("flagged", 4),
        Column("from", 5),
        Column("to", 3),
        numbers("age", 1),
        Column("licence", 2),
    )
    flagged = [(row.provider, str(row.prices), row.reason) for row in view.flagged]
    total = sum(row.offers for row in view.clouds)
    chips = [
        (
            row.accelerator,
            row.provider,
            f"{row.memory_gb:.0f}",
            _least(row.nano_usd_per_chip_hour),
            _least(row.spot_nano_usd_per_chip_hour),
            row.newest,
            _short(row.regions),
        )
        for row in view.not_usable
    ]
    chip_head = (
        Column("not usable yet"),
        Column("provider"),
        numbers("GB", 3),
        numbers("$/chip-h from"),
        numbers("spot from", 1),
        Column("as of", 2),
        Column("regions", 4, text=True),
    )
    broken = [f"the installed catalogue is not used: {clean(each)}" for each in view.damage[:3]]
    return "\n\n".join(
        part
        for part in (
            screen.state("\n".join(broken), "fail") if broken else "",
            blocks(
                table(head, clouds, screen),
                f"{total} offers of the catalogue {clean(view.version)}, which "
                f"{'was installed' if view.installed else 'came with Tradewind'}; list prices may have changed since",
            ),
            table(source_head, sources, screen),
            table((Column("not offered"), numbers("prices"), Column("because", text=True)), flagged, screen)
            if flagged
            else "",
            table(chip_head, chips, screen) if chips else "",
        )
        if part
    )


def update(view: CatalogUpdate, screen: Screen) -> str:
    """What an update of the catalogue installed."""
    if not view.changed:
        return screen.state(f"the catalogue {clean(view.version)} is already in use", "ok")
    before = f"before: {clean(view.version_before)} with {view.offers_before}"
    return screen.state(f"the catalogue {clean(view.version)} with {view.offers} offers is in use ({before})", "ok")


def verdict(view: CatalogVerdict, screen: Screen) -> str:
    """Whether a catalogue passed its checks, with every finding."""
    what = clean(view.path) if view.path else "the catalogue"
    if view.findings:
        return screen.state(f"{what}: {len(view.findings)} finding(s)", "fail")
    return screen.state(f"{what}: no errors in {view.checked} prices", "ok")


def _least(nano_usd: int | None) -> str:
    return "-" if nano_usd is None else format_usd(nano_usd, 4)


def _age(days: float) -> str:
    return span(days * 86_400)


def _short(names: tuple[str, ...], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
