"""Periods of reports: a month, or from one time to another, and the previous period to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.errors import UsageError, echoed
from orchestrator.formats.readable import day_meant, iso
from orchestrator.services.prices.history import instant_of

DAY_MS = 86_400_000
MOST_DAYS = 3660
USUAL_DAYS = 30
"""The length of a period that has only an end."""
_MONTH = "%B %Y"
EARLIEST_MS = 1_262_304_000_000
"""2010-01-01: there are no earlier costs or prices, so longer ranges are cut."""


@dataclass(frozen=True, slots=True)
class Period:
    """[`from_ms`, `until_ms`), its name for people, and the start and name of the previous period, which ends where
    this one begins."""

    from_ms: int
    until_ms: int
    name: str
    before_ms: int
    before_name: str


def period_of(now_ms: int, *, month: str | None = None, since: str | None = None, until: str | None = None) -> Period:
    """The period given by these arguments; without any, the month of `now_ms`; with only an end, the USUAL_DAYS before
    it. Raises UsageError."""
    if month is not None and (since is not None or until is not None):
        raise UsageError("give either a month or --since and --until, not both", hint="omit one of them")
    if since is None and until is None:
        return _month(_named(now_ms) if month is None else month)
    start, end = bounds(now_ms, since, until)
    whole_days = start % DAY_MS == end % DAY_MS == 0
    before = max(0, 2 * start - end)
    shown, zone = (_day, "") if whole_days else (_minute, " UTC")
    words, earlier = (f"{shown(first)} to {shown(last)}{zone}" for first, last in ((start, end), (before, start)))
    return Period(start, end, words, before, earlier)


def bounds(now_ms: int, since: str | None, until: str | None) -> tuple[int, int]:
    """The start and end of the period between these times, in epoch ms. Without a start, it begins USUAL_DAYS before
    its end; without an end, it ends now. Raises UsageError."""
    end = instant_of(until, now_ms) if until is not None else now_ms
    start = max(EARLIEST_MS, instant_of(since, now_ms) if since is not None else end - USUAL_DAYS * DAY_MS)
    if since is not None and until is None and end <= start:
        raise UsageError(f"--since {echoed(since)} is in the future: it is {iso(now_ms)}", hint="begin earlier")
    if end <= start:
        raise UsageError("the period ends before it begins", hint="give a --since that is earlier than --until")
    if end - start > MOST_DAYS * DAY_MS:
        raise UsageError(f"a period has at most {MOST_DAYS} days", hint="begin later, for example --since 365d")
    return start, end


def months_around(now_ms: int, month: str) -> tuple[str | None, str | None]:
    """The months before and after this one; None for a month that has not begun."""
    here = _month(month)
    after = _named(here.until_ms)
    return _named(here.from_ms - 1), after if here.until_ms <= now_ms else None


def month_named(at_ms: int) -> str:
    """The month of a time, such as `2026-11`."""
    return _named(at_ms)


def _month(text: str) -> Period:
    try:
        begin = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        end = (begin + timedelta(days=32)).replace(day=1)
        before = (begin - timedelta(days=1)).replace(day=1)
    except (ValueError, OverflowError) as error:
        raise not_a_month(text) from error
    return Period(_ms(begin), _ms(end), begin.strftime(_MONTH), _ms(before), before.strftime(_MONTH))


def not_a_month(text: str) -> UsageError:
    """The error for text that is not a month, with the right form."""
    meant = day_meant(text)
    return UsageError(f"{echoed(text)} is not a month", hint=f"write {meant:%Y-%m}" if meant else "for example 2026-11")


def _named(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m")


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def _minute(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
