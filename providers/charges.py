"""Charges: what a provider bills, one function per charge, and what each provider declares to bill.

The plan, the ledger and the bills of the simulated clouds call the same functions, so that they can be compared to the
nano-dollar. Amounts are integers of nano-USD and each is rounded down once, at its end. What a provider does not
declare is not billed and not booked. Machine time itself is `providers.money.cost_nano_usd`; the rates of egress, which
go by route, are in `providers.egress`.

Must not know: jobs, runs, who pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from providers.money import cost_nano_usd

GB = 1_000_000_000
MONTH_MS = 730 * 3_600_000
"""As AWS and Azure count (aws.amazon.com/ebs/pricing, "730 hours in a month")."""


@dataclass(frozen=True, slots=True)
class RateCard:
    """What one provider bills besides machine time and egress. Money in nano-USD.

    `minimum_ms`: a machine that was billed at all is billed for so long at least. `source`: who published the figures
    and when. `declared` is false for one that nobody has written down: the plan reckons with typical figures, rather
    too dear than too cheap, and the ledger books none of them.
    """

    source: str
    minimum_ms: int = 0
    storage_nano_usd_per_gb_month: int = 0
    declared: bool = True


_SIMULATED = "simulated: figures of this product, of the height of the clouds'"
_STORAGE_SOURCE = "list price of the standard class in the provider's home region, 2026-11; billed by the second"
RATE_CARDS = {
    "aws": RateCard(f"S3, EC2 per-second billing: {_STORAGE_SOURCE}, at least a minute", 60_000, 23_000_000),
    "gcp": RateCard(f"Cloud Storage, Compute Engine billing: {_STORAGE_SOURCE}, at least a minute", 60_000, 20_000_000),
    "azure": RateCard(f"Blob hot LRS, Virtual Machines: {_STORAGE_SOURCE}, at least a minute", 60_000, 18_400_000),
    "local": RateCard(_SIMULATED),
    "fake": RateCard(_SIMULATED),
}
UNDECLARED = RateCard("assumed: nobody has declared this provider's charges", 60_000, 23_000_000, declared=False)


def rate_card(provider: str) -> RateCard:
    """What a provider bills besides machine time and egress."""
    return RATE_CARDS.get(provider, UNDECLARED)


def minimum_nano_usd(card: RateCard, price_changes: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """What a machine that has ended costs besides its time, for having ended before the shortest time that is billed.

    The price that was paid last holds for the rest: nobody bills a machine that is gone by the market's later moves.
    Raises ValueError when no price is known at `from_ms`.
    """
    least_end_ms = from_ms + card.minimum_ms
    if to_ms >= least_end_ms:
        return 0
    paid = [(at_ms, price) for at_ms, price in price_changes if at_ms < to_ms or at_ms <= from_ms]
    return cost_nano_usd(paid, from_ms, least_end_ms) - cost_nano_usd(paid, from_ms, to_ms)


def egress_nano_usd(rate_nano_usd_per_gb: int, size_bytes: int) -> int:
    """For bytes that are moved once, at the rate of their route."""
    return rate_nano_usd_per_gb * size_bytes // GB


def kept_nano_usd(rate_nano_usd_per_gb_month: int, levels: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """For bytes that are kept from `from_ms` to `to_ms`. `levels` are (since_ms, bytes), ascending; before the first
    one there is nothing."""
    if to_ms <= from_ms:
        return 0
    byte_ms = 0
    ends = [*(since for since, _ in levels[1:]), to_ms]
    for (since_ms, size_bytes), end_ms in zip(levels, ends, strict=True) if levels else ():
        byte_ms += size_bytes * max(0, min(end_ms, to_ms) - max(since_ms, from_ms))
    return rate_nano_usd_per_gb_month * byte_ms // (GB * MONTH_MS)


def storage_nano_usd(card: RateCard, levels: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """For checkpoints: the bytes kept and the time."""
    return kept_nano_usd(card.storage_nano_usd_per_gb_month, levels, from_ms, to_ms)
