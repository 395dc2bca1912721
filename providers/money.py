"""Money as integer nano-USD, and the cost of an interval at varying prices.

The ledger and the simulated providers' bills both use `cost_nano_usd`, so they can be compared to the nano-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

NANO_USD = 1_000_000_000
MS_PER_HOUR = 3_600_000


def usd(amount: str | int | float | Decimal) -> int:
    """Convert dollars to nano-USD. Exact for str, int and Decimal; a float is read by its shortest decimal form."""
    return int((Decimal(str(amount)) * NANO_USD).to_integral_value())


def whole_usd(nano_usd: int) -> str:
    """Format nano-USD exactly, with at least two decimal places: for amounts that are compared."""
    digits = f"{Decimal(abs(nano_usd)) / NANO_USD:.9f}".rstrip("0")
    return format_usd(nano_usd, max(2, len(digits.partition(".")[2])))


def format_usd(nano_usd: int, places: int = 2) -> str:
    """Format nano-USD as `$1,234.56`. Amounts below a cent get at least six decimal places, those below a micro-dollar
    nine."""
    if nano_usd != 0 and abs(nano_usd) < NANO_USD // 100:
        places = max(places, 6 if abs(nano_usd) >= 1000 else 9)
    sign = "-" if nano_usd < 0 else ""
    return f"{sign}${Decimal(abs(nano_usd)) / NANO_USD:,.{places}f}"


def about_usd(nano_usd: int) -> str:
    """An amount in a sentence, with the significant places: `$12.29`, below a dollar `$0.1365`."""
    return format_usd(nano_usd, places_of(nano_usd))


def places_of(nano_usd: int) -> int:
    """How many decimals `about_usd` shows, at least."""
    return 2 if nano_usd == 0 or abs(nano_usd) >= NANO_USD else 4


def at_least_usd(nano_usd: int) -> str:
    """A positive amount as `about_usd`, but rounded up, so a user who types it in has enough."""
    return about_usd(rounded_up(nano_usd))


def rounded_up(nano_usd: int) -> int:
    """The amount that `at_least_usd` shows, in nano-USD."""
    return -(-nano_usd // _step(nano_usd)) * _step(nano_usd)


def at_most_usd(nano_usd: int) -> str:
    """A positive amount as `about_usd`, but rounded down, so a user who types it in does not exceed it."""
    return about_usd(nano_usd // _step(nano_usd) * _step(nano_usd))


def rounded(nano_usd: int, like_nano_usd: int) -> int:
    """An amount to the last digit that `about_usd` shows of `like_nano_usd`, for parts that add up to it as shown."""
    return round(nano_usd, 1 - len(str(_step(like_nano_usd))))  # a step is a power of ten


def _step(nano_usd: int) -> int:
    """The last digit that `about_usd` shows, in nano-USD."""
    if nano_usd >= NANO_USD:
        return NANO_USD // 100
    return NANO_USD // (10_000 if nano_usd >= NANO_USD // 100 else 1_000_000)


def cost_nano_usd(changes: Sequence[tuple[int, int]] | Iterable[tuple[int, int]], start_ms: int, end_ms: int) -> int:
    """Cost of the interval `start_ms`..`end_ms` (epoch ms) at a piecewise-constant price, in nano-USD.

    `changes` are (effective_at_ms, nano_usd_per_hour), ascending in time; the first must be at or before `start_ms`.
    The sum is exact (integers of nano-USD x ms) and is rounded down once, at the end.

    Raises ValueError if no price is in force at `start_ms` or the changes are not in order.
    """
    if end_ms <= start_ms:
        return 0
    total = 0
    price: int | None = None
    since = start_ms
    last = None
    for at_ms, per_hour in changes:
        if last is not None and at_ms < last:
            raise ValueError("price changes are not in order")
        last = at_ms
        if at_ms >= end_ms:
            break
        if at_ms <= start_ms:
            price = per_hour
            continue
        if price is None:
            break
        total += price * (at_ms - since)
        since, price = at_ms, per_hour
    if price is None:
        raise ValueError(f"no price is known at {start_ms}")
    total += price * (end_ms - since)
    return total // MS_PER_HOUR
