"""Charges: what a provider bills, one function per charge, and what each provider declares to bill.

The plan, the ledger and the bills of the simulated clouds call the same functions, so that they can be compared to the
nano-dollar. Amounts are integers of nano-USD and each is rounded down once, at its end. What a provider does not
declare is not billed and not booked. Machine time itself is `providers.money.cost_nano_usd`; the rates of egress, which
go by route, are in `providers.egress`.

Must not know: jobs, runs, who pays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from providers.money import cost_nano_usd

GB = 1_000_000_000
MONTH_MS = 730 * 3_600_000
"""As AWS and Azure count (aws.amazon.com/ebs/pricing, "730 hours in a month")."""

ChargeKind = Literal["minimum_charge", "disk", "failed_launch"]
"""What is billed besides a machine's time."""
CHARGE_KINDS: tuple[ChargeKind, ...] = get_args(ChargeKind)


@dataclass(frozen=True, slots=True)
class RateCard:
    """What one provider bills besides machine time and egress. Money in nano-USD.

    `minimum_ms`: a machine that was billed at all is billed for so long at least. `disk_bytes` is the disk that comes
    with each machine, billed as long as the machine is. `failed_launch_nano_usd` is for a launch that was accepted and
    never became a machine that is billed. `source`: who published the figures and when. `declared` is false for a
    provider that nobody has written down: the plan reckons with typical figures, rather too dear than too cheap, and
    the ledger books none of them.
    """

    source: str
    minimum_ms: int = 0
    storage_nano_usd_per_gb_month: int = 0
    disk_bytes: int = 0
    disk_nano_usd_per_gb_month: int = 0
    failed_launch_nano_usd: int = 0
    declared: bool = True


_SIMULATED = "simulated: figures of this product, of the height of the clouds'"
_STORAGE_SOURCE = "list price of the standard class in the provider's home region, 2026-11; billed by the second"
RATE_CARDS = {
    "aws": RateCard(f"S3, EC2 per-second billing: {_STORAGE_SOURCE}, at least a minute", 60_000, 23_000_000),
    "gcp": RateCard(f"Cloud Storage, Compute Engine billing: {_STORAGE_SOURCE}, at least a minute", 60_000, 20_000_000),
    "azure": RateCard(f"Blob hot LRS, Virtual Machines: {_STORAGE_SOURCE}, at least a minute", 60_000, 18_400_000),
    "local": RateCard(_SIMULATED, 60_000, disk_bytes=10 * GB, disk_nano_usd_per_gb_month=40_000_000),
    "fake": RateCard(
        _SIMULATED,
        60_000,
        disk_bytes=50 * GB,
        disk_nano_usd_per_gb_month=80_000_000,
        failed_launch_nano_usd=1_000_000,
    ),
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


def disk_nano_usd(card: RateCard, from_ms: int, to_ms: int) -> int:
    """For the disk of a machine, from the begin of its billing to its end."""
    return kept_nano_usd(card.disk_nano_usd_per_gb_month, [(from_ms, card.disk_bytes)], from_ms, to_ms)


def charges(
    card: RateCard,
    price_changes: Sequence[tuple[int, int]],
    from_ms: int | None,
    to_ms: int | None,
    upto_ms: int,
    *,
    ended: bool,
) -> Mapping[ChargeKind, int]:
    """All that a machine is billed up to `upto_ms` besides its time: nano-USD by kind, without those that are nothing.

    It was billed from `from_ms` (None: never) to `to_ms` (None: it still is). Raises ValueError when no price is known
    at `from_ms`.
    """
    found: dict[ChargeKind, int] = {}
    if from_ms is None:
        found["failed_launch"] = card.failed_launch_nano_usd if ended else 0
    else:
        found["disk"] = disk_nano_usd(card, from_ms, upto_ms if to_ms is None else to_ms)
        if to_ms is not None:
            found["minimum_charge"] = minimum_nano_usd(card, price_changes, from_ms, to_ms)
    return {kind: amount for kind, amount in found.items() if amount}
