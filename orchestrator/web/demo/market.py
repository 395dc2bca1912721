"""The market of the generated fleet: real machine types at three clouds, with invented prices.

On-demand prices are close to list prices; a spot price wanders around a share of them and sometimes leaps. Everything
is derived from a seed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from providers.money import usd
from providers.offer import CapacityType, Offer

HOUR_MS = 3_600_000
GB = 1_000_000_000

ZONES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "aws": (
        ("us-east-1", "us-east-1a"),
        ("us-east-1", "us-east-1d"),
        ("us-west-2", "us-west-2b"),
        ("eu-west-1", "eu-west-1c"),
    ),
    "gcp": (("us-central1", "us-central1-a"), ("us-central1", "us-central1-f"), ("europe-west4", "europe-west4-a")),
    "azure": (("eastus", "eastus-1"), ("westeurope", "westeurope-2"), ("southcentralus", "southcentralus-3")),
}
MACHINES: Mapping[str, tuple[tuple[str, str, int, int, int, str], ...]] = {  # type, GPU, GPUs, vCPUs, GB, USD per hour
    "aws": (
        ("g6.xlarge", "L4", 1, 4, 16, "0.8048"),
        ("g5.2xlarge", "A10G", 1, 8, 32, "1.212"),
        ("p3.2xlarge", "V100", 1, 8, 61, "3.06"),
        ("p4d.24xlarge", "A100-40GB", 8, 96, 1152, "21.9576"),
        ("p5.4xlarge", "H100", 1, 16, 256, "6.88"),
    ),
    "gcp": (
        ("g2-standard-8", "L4", 1, 8, 32, "0.8536"),
        ("a2-highgpu-1g", "A100-40GB", 1, 12, 85, "3.6734"),
        ("a2-ultragpu-1g", "A100-80GB", 1, 12, 170, "5.0688"),
        ("a3-highgpu-1g", "H100", 1, 26, 234, "11.0613"),
    ),
    "azure": (
        ("NC4as_T4_v3", "T4", 1, 4, 28, "0.526"),
        ("NC24ads_A100_v4", "A100-80GB", 1, 24, 220, "3.673"),
        ("NC40ads_H100_v5", "H100-NVL", 1, 40, 320, "6.98"),
    ),
}
SOURCE = "generated (simulated)"


@dataclass(frozen=True)
class DemoMarket:
    """The offers, and the price changes of each: (effective at, nano-USD per hour), ascending."""

    offers: tuple[Offer, ...]
    prices: Mapping[str, Sequence[tuple[int, int]]]

    def price_at(self, offer_id: str, at_ms: int) -> int:
        """The current price at a time, in nano-USD per hour."""
        changes = self.prices[offer_id]
        return changes[max(0, bisect_right(changes, (at_ms, 1 << 62)) - 1)][1]

    def prices_within(self, offer_id: str, from_ms: int, until_ms: int) -> Sequence[tuple[int, int]]:
        """The price changes of an offer, from the price in effect at `from_ms` to the last change before `until_ms`."""
        changes = self.prices[offer_id]
        return changes[max(0, bisect_right(changes, (from_ms, 1 << 62)) - 1) : bisect_left(changes, (until_ms, 0))]


def market(start_ms: int, end_ms: int, seed: int, *, changes_per_day: float = 4.0) -> DemoMarket:
    """The market between two instants. `changes_per_day` is how often each spot price changes."""
    offers, prices = [], {}
    for cloud, machines in MACHINES.items():
        for region, zone in ZONES[cloud]:
            for kind, gpu, count, vcpu, memory, list_price in machines:
                for capacity in CapacityType:
                    offer = Offer(cloud, region, zone, kind, gpu, count, vcpu, memory * GB, capacity, simulated=True)
                    offers.append(offer)
                    at = Random(f"{seed} {offer.id}")
                    dear = 1.0 + 0.12 * (zone[0] != "u" and cloud != "azure") + 0.1 * (region == "westeurope")
                    listed = round(usd(list_price) * dear)
                    prices[offer.id] = (
                        _spot(at, listed, start_ms, end_ms, changes_per_day) if offer.spot else [(start_ms, listed)]
                    )
    return DemoMarket(tuple(offers), prices)


def _spot(at: Random, listed: int, start_ms: int, end_ms: int, changes_per_day: float) -> list[tuple[int, int]]:
    usual = at.uniform(0.24, 0.46)
    share, now = usual, start_ms
    changes: list[tuple[int, int]] = []
    while now < end_ms:
        changes.append((now, round(listed * share / 100_000) * 100_000))
        now += round(at.expovariate(changes_per_day) * 24 * HOUR_MS) + 60_000
        usual = min(0.6, max(0.2, usual + at.gauss(0, 0.004)))
        share += 0.25 * (usual - share) + at.gauss(0, 0.012)
        if at.random() < 0.004:
            share += at.uniform(0.1, 0.35)  # high demand
        share = min(0.95, max(0.15, share))
    return changes
