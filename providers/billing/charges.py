"""What providers bill besides machine time: one function per charge, and the rates of each provider.

The plan, the ledger and the bills of the simulated clouds use the same functions, so they can be compared to the
nano-dollar. Amounts are integers of nano-USD, each rounded down once, at the end. A charge that a provider does not
declare is neither billed nor booked. Machine time itself is `providers.money.cost_nano_usd`; list prices of egress by
route are in `providers.billing.egress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from providers.money import cost_nano_usd

GB = 1_000_000_000
MONTH_MS = 730 * 3_600_000
"""Hours in a month, as AWS and Azure count it (aws.amazon.com/ebs/pricing, "730 hours in a month")."""

CHECKPOINT_OBJECT_BYTES = 4 * 2**20
"""A checkpoint is stored in objects of at most this size, plus one object that lists them."""

MachineCharge = Literal["minimum_charge", "disk", "failed_launch"]
"""Charges besides machine time that depend only on the machine and its lifetime."""
UsageCharge = Literal["egress", "requests", "storage", "egress_estimate"]
"""Charges for the checkpoints that a machine receives and stores. `egress_estimate`: what the cloud of a bucket is
expected to bill for fetching one, apart from the machine's bill."""
ChargeKind = Literal[MachineCharge, UsageCharge]
MACHINE_CHARGES: tuple[MachineCharge, ...] = get_args(MachineCharge)
CHARGE_KINDS: tuple[ChargeKind, ...] = (*MACHINE_CHARGES, *get_args(UsageCharge))

Location = tuple[str, ...]
"""(provider, region[, zone]). An empty region is unknown and counts as the nearest; no zone means anywhere in the
region.
"""


@dataclass(frozen=True, slots=True)
class RateCard:
    """What one provider bills besides machine time. Amounts are in nano-USD.

    `minimum_ms` is the shortest time that is billed for a machine that was billed at all. `disk_bytes` is the disk of
    each machine, billed as long as the machine. `failed_launch_nano_usd` is billed for a launch that was accepted but
    never became a billed machine. `region_egress_nano_usd_per_gb` applies to bytes that go to another region of the
    same provider, `internet_egress_nano_usd_per_gb` to bytes that leave the provider; both are typical figures, used if
    the list price of the route is unknown. Copying a checkpoint between regions reads each object once at the source
    and writes it once at the target (`read_request_nano_usd`, `write_request_nano_usd`). `bills_checkpoints`: egress,
    requests and storage of checkpoints are on the bill of the machine that uses them; if False, egress is booked as an
    estimate, and the others are not booked. `source` says who published the figures and when. `declared` is False for a
    provider whose charges are unknown: plans use typical figures on the high side, and the ledger books none of them.
    """

    source: str
    minimum_ms: int = 0
    storage_nano_usd_per_gb_month: int = 0
    disk_bytes: int = 0
    disk_nano_usd_per_gb_month: int = 0
    failed_launch_nano_usd: int = 0
    region_egress_nano_usd_per_gb: int = 50_000_000
    internet_egress_nano_usd_per_gb: int = 90_000_000
    read_request_nano_usd: int = 0
    write_request_nano_usd: int = 0
    bills_checkpoints: bool = False
    declared: bool = True


_SIMULATED = "simulated: figures of this product, similar to those of real clouds"
_STORAGE_SOURCE = "list price of the standard class in the provider's home region, 2026-11; billed by the second"
# Egress in USD/GB by public price lists (AWS, Azure: 2024-01; GCP: 2026-07): between regions AWS mostly 0.02, GCP up to
# 0.08 between continents, Azure up to 0.05; to the internet AWS 0.09, GCP 0.12, Azure 0.087.
RATE_CARDS = {
    "aws": RateCard(
        f"S3, EC2 per-second billing: {_STORAGE_SOURCE}, at least a minute",
        60_000,
        23_000_000,
        region_egress_nano_usd_per_gb=20_000_000,
    ),
    "gcp": RateCard(
        f"Cloud Storage, Compute Engine billing: {_STORAGE_SOURCE}, at least a minute",
        60_000,
        20_000_000,
        region_egress_nano_usd_per_gb=80_000_000,
        internet_egress_nano_usd_per_gb=120_000_000,
    ),
    "azure": RateCard(
        f"Blob hot LRS, Virtual Machines: {_STORAGE_SOURCE}, at least a minute",
        60_000,
        18_400_000,
        internet_egress_nano_usd_per_gb=87_000_000,
    ),
    "local": RateCard(
        _SIMULATED,
        60_000,
        20_000_000,
        disk_bytes=10 * GB,
        disk_nano_usd_per_gb_month=40_000_000,
        region_egress_nano_usd_per_gb=10_000_000,
        internet_egress_nano_usd_per_gb=20_000_000,
        read_request_nano_usd=400,
        write_request_nano_usd=5_000,
        bills_checkpoints=True,
    ),
    "static": RateCard(
        "owned machines: no charges besides the declared price",
        region_egress_nano_usd_per_gb=0,
        internet_egress_nano_usd_per_gb=0,
    ),
    "fake": RateCard(
        _SIMULATED,
        60_000,
        30_000_000,
        disk_bytes=50 * GB,
        disk_nano_usd_per_gb_month=80_000_000,
        failed_launch_nano_usd=1_000_000,
        read_request_nano_usd=400,
        write_request_nano_usd=5_000,
        bills_checkpoints=True,
    ),
}
UNDECLARED = RateCard("assumed: this provider's charges are not declared", 60_000, 23_000_000, declared=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Checkpoint usage of a machine at the location `at`.

    A checkpoint of `moved_bytes` was copied there from `moved_from`, and `kept_bytes` of storage were in use while the
    machine was billed.
    """

    at: Location
    moved_from: Location = ()
    moved_bytes: int = 0
    kept_bytes: int = 0


def rate_card(provider: str) -> RateCard:
    """What a provider bills besides machine time; UNDECLARED for an unknown provider."""
    return RATE_CARDS.get(provider, UNDECLARED)


def egress_rate(source: Location, target: Location) -> int:
    """nano-USD per 10^9 bytes from one location to another by the source's rate card; 0 within a region."""
    card = rate_card(source[0])
    if source[0] != target[0]:
        return card.internet_egress_nano_usd_per_gb
    return card.region_egress_nano_usd_per_gb if crosses(source, target) else 0


def crosses(source: Location, target: Location) -> bool:
    """True if bytes between these locations leave their region."""
    if source[0] != target[0]:
        return True
    return source[1] != target[1] and bool(source[1] and target[1])


def minimum_nano_usd(card: RateCard, price_changes: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """What an ended machine costs on top of its time because it ended before the minimum billed time, in nano-USD.

    The last price that was paid applies to the rest: later price changes do not affect a machine that has ended. Raises
    ValueError if no price is known at `from_ms`.
    """
    least_end_ms = from_ms + card.minimum_ms
    if to_ms >= least_end_ms:
        return 0
    paid = [(at_ms, price) for at_ms, price in price_changes if at_ms < to_ms or at_ms <= from_ms]
    return cost_nano_usd(paid, from_ms, least_end_ms) - cost_nano_usd(paid, from_ms, to_ms)


def egress_nano_usd(rate_nano_usd_per_gb: int, size_bytes: int) -> int:
    """Cost of moving `size_bytes` once at the rate of their route, in nano-USD."""
    return rate_nano_usd_per_gb * size_bytes // GB


def requests_nano_usd(source: Location, target: Location, size_bytes: int) -> int:
    """Cost of the requests that copy a checkpoint: reads at the source and writes at the target, in nano-USD; 0 within
    a region.
    """
    if not size_bytes or not crosses(source, target):
        return 0
    return checkpoint_objects(size_bytes) * object_nano_usd(rate_card(source[0]), rate_card(target[0]))


def checkpoint_objects(size_bytes: int) -> int:
    """The number of objects of a checkpoint."""
    return 1 + -(-size_bytes // CHECKPOINT_OBJECT_BYTES)


def object_nano_usd(source: RateCard, target: RateCard) -> int:
    """Cost of the requests that copy one object to another region, in nano-USD."""
    return source.read_request_nano_usd + target.write_request_nano_usd


def kept_nano_usd(rate_nano_usd_per_gb_month: int, levels: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """Cost of storing bytes from `from_ms` to `to_ms`, in nano-USD.

    `levels` are (since_ms, bytes), ascending; nothing is stored before the first one.
    """
    if to_ms <= from_ms:
        return 0
    byte_ms = 0
    ends = [*(since for since, _ in levels[1:]), to_ms]
    for (since_ms, size_bytes), end_ms in zip(levels, ends, strict=True) if levels else ():
        byte_ms += size_bytes * max(0, min(end_ms, to_ms) - max(since_ms, from_ms))
    return rate_nano_usd_per_gb_month * byte_ms // (GB * MONTH_MS)


def storage_nano_usd(card: RateCard, levels: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    """Cost of storing checkpoints from `from_ms` to `to_ms`, in nano-USD; `levels` as for `kept_nano_usd`."""
    return kept_nano_usd(card.storage_nano_usd_per_gb_month, levels, from_ms, to_ms)


def disk_nano_usd(card: RateCard, from_ms: int, to_ms: int) -> int:
    """Cost of a machine's disk over its billed interval, in nano-USD."""
    return kept_nano_usd(card.disk_nano_usd_per_gb_month, [(from_ms, card.disk_bytes)], from_ms, to_ms)


def charges(
    card: RateCard,
    price_changes: Sequence[tuple[int, int]],
    from_ms: int | None,
    to_ms: int | None,
    upto_ms: int,
    *,
    ended: bool,
    usage: Usage | None = None,
) -> Mapping[ChargeKind, int]:
    """All charges of a machine up to `upto_ms` besides its time: nano-USD by kind, without zeros.

    The machine was billed from `from_ms` (None: never) to `to_ms` (None: still running); `usage` is its checkpoint
    usage. Raises ValueError if no price is known at `from_ms`.
    """
    found: dict[ChargeKind, int] = {}
    if from_ms is None:
        found["failed_launch"] = card.failed_launch_nano_usd if ended else 0
    else:
        found["disk"] = disk_nano_usd(card, from_ms, upto_ms if to_ms is None else to_ms)
        if to_ms is not None:
            found["minimum_charge"] = minimum_nano_usd(card, price_changes, from_ms, to_ms)
    if usage is not None and card.bills_checkpoints:
        if usage.moved_bytes:
            found["egress"] = egress_nano_usd(egress_rate(usage.moved_from, usage.at), usage.moved_bytes)
            found["requests"] = requests_nano_usd(usage.moved_from, usage.at, usage.moved_bytes)
        if from_ms is not None:
            room = [(from_ms, usage.kept_bytes)]
            found["storage"] = storage_nano_usd(card, room, from_ms, upto_ms if to_ms is None else to_ms)
    return {kind: amount for kind, amount in found.items() if amount}
