"""Units of the job file: converts sizes, durations, instants, money and shares from text to exact numbers.

Pure functions of text and numbers.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from providers.money import usd

_NUMBER = r"(?P<number>\d{1,18}(?:\.\d{1,9})?)"
_SIZE = re.compile(rf"{_NUMBER}\s*(?P<unit>[kmgtp]i?)?(?P<b>b)?", re.ASCII | re.IGNORECASE)
_SIZE_FACTORS = {"": 1} | {
    f"{prefix}{i}": (1024 if i else 1000) ** power for power, prefix in enumerate("kmgtp", start=1) for i in ("", "i")
}
_DURATION_PART = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>[a-z]+)", re.ASCII | re.IGNORECASE)
_DURATION_FACTORS = {
    unit: factor
    for factor, units in (
        (1, ("s", "sec", "secs", "second", "seconds")),
        (60, ("m", "min", "mins", "minute", "minutes")),
        (3600, ("h", "hr", "hrs", "hour", "hours")),
        (86_400, ("d", "day", "days")),
        (604_800, ("w", "week", "weeks")),
    )
    for unit in units
}
_MONEY = re.compile(
    r"(?P<sign>-?)\s*\$?\s*(?P<number>\d{1,3}(?:,\d{3})+|\d{1,15})(?P<part>\.\d{1,100})?\s*(?:USD|\$)?",
    re.ASCII | re.IGNORECASE,
)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%", re.ASCII)
_DURATIONS = '"48h", "90 min" or "2d 3h" (units s, min, h, d, w)'
_INSTANTS = '"2030-01-31T18:00:00Z" (UTC) or "2030-01-31 18:00+02:00"'
_LOOKS_LIKE_DATE = re.compile(r"\d{4}-\d", re.ASCII)

MAX_SIZE_BYTES = 10**18
MIN_BANDWIDTH = 1000
MAX_DURATION_S = 100 * 365 * 86_400
MAX_USD = 10**9


class BadValueError(ValueError):
    """A value that cannot be read; `hint` is the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotADurationError(BadValueError):
    """A value that does not have the form of a duration."""


def quoted(value: object) -> str:
    """A value for a message: quoted, printable, short."""
    if isinstance(value, int) and abs(value) > MAX_SIZE_BYTES:
        return "a huge number"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    plain = value is None or isinstance(value, str | int | float)
    text = json.dumps(value, ensure_ascii=False) if plain else type(value).__name__
    text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    if len(text) <= 60:
        return text
    return text[:56] + '..."' if isinstance(value, str) else text[:57] + "..."


def shown(text: str) -> str:
    """A text for a message: unchanged, or quoted if it would be unclear."""
    return text if text.isprintable() and text.strip() == text != "" and len(text) <= 40 else quoted(text)


def parse_size(value: object) -> int:
    """`"120 GB"`, `"64 GiB"`, `"1.5TB"` -> bytes (GB = 10^9, GiB = 2^30). Raises BadValueError."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not (match["unit"] or match["b"]):
        raise BadValueError(f"{quoted(value)} is not a size", 'write a number with a unit, such as "64 GB"')
    return _positive_size(_bytes(match["number"], match["unit"] or ""))


def parse_bandwidth(value: object) -> int:
    """`"50 MB/s"` -> bytes per second, at least MIN_BANDWIDTH. Bits ("50 Mb/s") are refused. Raises BadValueError."""
    remedy = 'write a size per second, such as "50 MB/s"'
    text = value.strip() if isinstance(value, str) else ""
    match = _SIZE.fullmatch(text[:-2]) if text.lower().endswith("/s") else None
    if match is None or not (match["unit"] or match["b"]):
        raise BadValueError(f"{quoted(value)} is not a bandwidth", remedy)
    if match["unit"] and match["b"] == "b":
        raise BadValueError(f"{quoted(value)} may mean bits", f"{remedy}: B is a byte, which has 8 bits")
    if (found := parse_size(text[:-2])) < MIN_BANDWIDTH:
        raise BadValueError(f"{quoted(value)} is less than 1 kB/s", remedy)
    return found


def parse_size_range(value: object) -> tuple[int, int | None]:
    """`"40 GB.."`, `"40..80 GB"`, `"..80 GB"` -> (at least, at most) in bytes; `"40 GB"` means at least that.

    Raises BadValueError.
    """
    if not isinstance(value, str) or ".." not in value:
        return parse_size(value), None
    low_text, high_text = (part.strip() for part in value.split("..", 1))
    if not low_text and not high_text:
        raise BadValueError(f"{quoted(value)} is not a range of sizes", 'write "40 GB..", "40..80 GB" or "..80 GB"')
    high = parse_size(high_text) if high_text else None
    low = 0
    if low_text:
        match = _SIZE.fullmatch(high_text) if high_text else None
        bare = low_text.replace(".", "", 1).isdigit()
        low = parse_size(f"{low_text} {match['unit'] or ''}B" if bare and match else low_text)
    if high is not None and low > high:
        raise BadValueError(f"the range {quoted(value)} is empty", "write the smaller size first")
    return low, high


def _bytes(number: str, unit: str) -> int:
    return int(Decimal(number) * _SIZE_FACTORS[unit.lower()])


def _positive_size(size: int) -> int:
    if not 0 < size <= MAX_SIZE_BYTES:
        raise BadValueError("must be more than 0 and at most 1000 PB")
    return size


def parse_duration(value: object) -> float:
    """`"48h"`, `"90 min"`, `"2d 3h"` -> seconds, more than 0. Raises BadValueError."""
    if not isinstance(value, str):
        raise NotADurationError(f"{quoted(value)} is not a duration", 'write a number with a unit, such as "48h"')
    text, at, total, seen = value.strip(), 0, Decimal(0), set[int]()
    while at < len(text):
        match = _DURATION_PART.match(text, at)
        factor = _DURATION_FACTORS.get(match["unit"].lower()) if match else None
        if match is None or factor is None or factor in seen:
            break
        seen.add(factor)
        total += Decimal(match["number"]) * factor
        at = match.end()
    if not text or at < len(text):
        hint = f"write it like {_DURATIONS}"
        if text.startswith("-"):
            raise BadValueError("must be more than 0", hint)
        raise NotADurationError(f"{quoted(value)} is not a duration", hint)
    if not 0 < total <= MAX_DURATION_S:
        raise BadValueError("must be more than 0 and at most 100 years")
    return float(total)


def parse_instant(value: str) -> int:
    """An ISO 8601 timestamp with its time zone -> epoch milliseconds. Raises BadValueError."""
    try:
        instant = datetime.fromisoformat(value.strip())
    except ValueError:
        raise BadValueError(f"{quoted(value)} is not a timestamp", f"write it like {_INSTANTS}") from None
    if instant.tzinfo is None:
        raise BadValueError(f"{quoted(value)} has no time zone", f"write the date, time and zone, like {_INSTANTS}")
    if instant.year < 1970:
        raise BadValueError(f"{quoted(value)} is in the past")
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_deadline(value: object) -> tuple[float | None, int | None]:
    """A duration or a timestamp -> (seconds, None) or (None, epoch ms). Raises BadValueError."""
    if isinstance(value, str) and _LOOKS_LIKE_DATE.match(value.strip()):
        return None, parse_instant(value)
    try:
        return parse_duration(value), None
    except NotADurationError:
        forms = f"a duration from submission, like {_DURATIONS}, or a time with its zone, like {_INSTANTS}"
        raise BadValueError(f"{quoted(value)} is neither a duration nor a time", f"write {forms}") from None


def parse_money(value: object) -> int:
    """`"250 USD"`, `"$1,250.50"`, `250` -> nano-USD, more than 0. Raises BadValueError."""
    part = ""
    if isinstance(value, int) and not isinstance(value, bool):
        amount = Decimal(max(-1, min(value, MAX_USD + 1)))  # Decimal refuses numbers with thousands of digits
    elif isinstance(value, float) and math.isfinite(value):
        amount = Decimal(str(value))
    else:
        match = _MONEY.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise BadValueError(
                f"{quoted(value)} is not an amount of money", 'write it in US dollars, such as "250 USD"'
            )
        part = match["part"] or ""
        amount = Decimal(match["sign"] + match["number"].replace(",", "") + part)
    if 0 < amount < Decimal("1e-9"):
        raise BadValueError(
            f"{quoted(value)} is less than the smallest amount, 0.000000001 USD", "write a larger amount"
        )
    if len(part.rstrip("0")) > len(".000000001"):
        raise BadValueError(
            f"{quoted(value)} is not a multiple of the smallest amount, 0.000000001 USD", "write fewer digits"
        )
    if not 0 < amount <= MAX_USD:
        raise BadValueError("must be more than 0 and at most 1,000,000,000 USD")
    return usd(amount)


def parse_share(value: object) -> float:
    """`"3.5%"` or `0.035` -> 0.035; more than 0, at most 1. Raises BadValueError."""
    share: float | None = None
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        share = float(Decimal(match[1]) / 100)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = value
    if share is None:
        raise BadValueError(f"{quoted(value)} is not a percentage", 'write it like "3.5%"')
    if not 0 < share <= 1:
        raise BadValueError("must be more than 0% and at most 100%", 'write "3.5%" for 0.035')
    return float(share)
