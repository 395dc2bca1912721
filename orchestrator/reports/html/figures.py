"""Formats figures for pages: money to the cent with the exact amount on hover, times in UTC, durations."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup, escape

from orchestrator.formats.readable import significant, span
from orchestrator.model import ACTION_WORDS
from providers.money import NANO_USD, format_usd
from providers.offer import OfferId, short_zone


def money_text(nano_usd: int) -> str:
    """An amount to the cent, or with two significant digits below one dollar: $1,234.57, $0.042, -$3.10."""
    sign, size = ("-" if nano_usd < 0 else ""), abs(nano_usd)
    if size >= NANO_USD * 995 // 1000 or size == 0:
        return f"{sign}${round(size, -7) / NANO_USD:,.2f}"
    places = 2
    while places < 9 and size < 10 ** (10 - places):
        places += 1
    return f"{sign}${size / NANO_USD:.{places}f}"


def money(nano_usd: int | None, sign: bool = False) -> Markup:
    """An amount as an element whose value is the exact one, also shown on hover. None: an unknown amount."""
    if nano_usd is None:
        return Markup('<span title="unknown">-</span>')
    shown = ("+" if sign and nano_usd > 0 else "") + money_text(nano_usd)
    return Markup('<data value="{}" title="{}">{}</data>').format(nano_usd, format_usd(nano_usd, 9), shown)


def price(nano_usd: int | float | None, unit: str = "h") -> Markup:
    """A price per hour or another unit, with four significant digits below ten dollars."""
    if nano_usd is None:
        return Markup('<span title="unknown">-</span>')
    sign, dollars = ("-" if nano_usd < 0 else ""), abs(nano_usd) / NANO_USD
    shown = f"{dollars:,.2f}" if dollars >= 10 else f"{dollars:.3f}" if dollars >= 0.1 else significant(dollars, 2)
    return Markup('<data value="{}" title="{}${:.9f}">{}${}</data><span class="sub">/{}</span>').format(
        round(nano_usd), sign, dollars, sign, shown, unit
    )


def instant(at_ms: int | None, form: str = "minute") -> Markup:
    """A time in UTC; a script may show it in local time. `form`: minute, day or second."""
    if at_ms is None:
        return Markup('<span title="unknown">-</span>')
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    shown = at.strftime({"day": "%Y-%m-%d", "second": "%Y-%m-%d %H:%M:%S"}.get(form, "%Y-%m-%d %H:%M"))
    return Markup('<time datetime="{}" data-form="{}" title="{} UTC">{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%SZ"), form, at.strftime("%Y-%m-%d %H:%M:%S"), shown
    )


def utc_day(at_ms: int) -> str:
    """The UTC day of a time, regardless of the reader's time zone."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def duration(seconds: float | None) -> str:
    """A duration in the usual format; "-" for None."""
    return "-" if seconds is None else span(seconds)


def ago(seconds: float | None) -> str:
    """An age as text."""
    return "never" if seconds is None else f"{duration(max(0.0, seconds))} ago"


def percent(share: float, digits: int = 0) -> str:
    """0.762 as `76%`."""
    return f"{share:.{digits}%}"


def ratio(part: float, whole: float) -> float:
    """part / whole, 0 for nothing."""
    return part / whole if whole else 0.0


def size(size_bytes: float | None) -> str:
    """`2.4 GB`."""
    if size_bytes is None:
        return "-"
    for by, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= by:
            return f"{size_bytes / by:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def number(value: float | None) -> str:
    """A count with thousands separators, or three significant digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 999.5 else significant(value, 3)


def counted(count: float, one: str, several: str = "") -> str:
    """`1 job`, `1,200 jobs`, `0.5 machine hours`. `several` is the plural if it is not `one` with an s."""
    shown = number(count)
    return f"{shown} {one}" if shown == "1" else f"{shown} {several or one + 's'}"


def place(offer_id: str | None) -> Markup:
    """Zone, machine type and capacity type, with the full id on hover."""
    if offer_id is None:
        return Markup('<span title="not running">-</span>')
    try:
        named = OfferId.parse(offer_id)
    except ValueError:
        return escape(offer_id)
    kind = "spot" if named.spot else "on demand"
    return Markup('<span class="place" title="{}">{}<small>{}, {}</small></span>').format(
        offer_id, short_zone(offer_id), named.instance_type, kind
    )


def action(name: str) -> str:
    """The action of a plan for a job, as text."""
    return ACTION_WORDS[name]


def machine(offer_id: str) -> str:
    """`p5.4xlarge in us-east-1a, spot`."""
    try:
        named = OfferId.parse(offer_id)
    except ValueError:
        return offer_id
    return f"{named.instance_type} in {named.zone or named.region}, {'spot' if named.spot else 'on demand'}"
