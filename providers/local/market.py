"""The simulated market of the `local` provider: offers, prices, capacity and preemptions from a seed.

Everything is a pure function of (seed, market time): each value is a hash of the seed, the offer and the number of a
time cell, so it does not depend on the order of calls, restarts or other processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer

PROVIDER = "local"
SOURCE = "local market (simulated)"
OPENED_MS = 1_577_836_800_000
"""2020-01-01 UTC: on-demand prices have been in force since then, and earlier prices are not requested."""

_SECOND_MS = 1000
_MINUTE_MS = 60_000
_PRICE_CELL_MS = 55 * _MINUTE_MS
_PRICE_JITTER_S = 35 * 60  # so that two changes are 20 to 90 minutes apart
_CAPACITY_CELL_MS = 120 * _MINUTE_MS
_RECLAIM_CELL_MS = 10 * _MINUTE_MS
_RECLAIM_HORIZON_CELLS = 30 * 24 * 6
_REVERSION = 0.8  # autocorrelation of one price to the next
_MEMORY = 16  # terms of the moving average that approximates the mean-reverting process: 0.8^16 < 3 %
_TICK_NANO_USD = 100_000  # prices are multiples of $0.0001


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A simulated machine: the throttle of its GPU sets its speed; its on-demand price is for a region at 100 %."""

    name: str
    gpu: str
    vcpu: int
    memory_bytes: int
    on_demand_nano_usd_per_hour: int


TYPES = (
    # Speeds 1 : 2 : 4 and prices 1 : 1.6 : 2.4, so the machine with the cheapest hour (small) has the costliest step.
    InstanceType("sim.small", "SIM-S", 1, 2 * GIB, usd("0.30")),
    InstanceType("sim.medium", "SIM-M", 1, 3 * GIB, usd("0.48")),
    InstanceType("sim.large", "SIM-L", 1, 4 * GIB, usd("0.72")),
)
REGIONS = {"north": 100, "south": 106, "west": 96}
"""Region -> its on-demand prices in percent of those of TYPES."""
ZONES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Reclaim:
    """When a spot pool preempts its machines, and whether they get a notice first."""

    at_ms: int
    with_notice: bool


class LocalMarket:
    """All offers of the simulated cloud and their prices for one seed. Times are market milliseconds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._on_demand: dict[str, int] = {}
        offers = []
        for region, percent in REGIONS.items():
            for zone in ZONES:
                for kind in TYPES:
                    for capacity_type in CapacityType:
                        offer = Offer(
                            PROVIDER,
                            region,
                            f"{region}-{zone}",
                            kind.name,
                            kind.gpu,
                            1,
                            kind.vcpu,
                            kind.memory_bytes,
                            capacity_type,
                            simulated=True,
                        )
                        offers.append(offer)
                        self._on_demand[offer.id] = kind.on_demand_nano_usd_per_hour * percent // 100
        self.offers = tuple(offers)
        self._spot = frozenset(offer.id for offer in offers if offer.spot)

    def __contains__(self, offer_id: object) -> bool:
        return offer_id in self._on_demand

    def is_spot(self, offer_id: str) -> bool:
        """True if machines of this offer can be preempted."""
        return offer_id in self._spot

    def price(self, offer_id: str, at_ms: int) -> int:
        """The price in force at a time, in nano-USD per hour."""
        if offer_id not in self._spot:
            return self._on_demand[offer_id]
        ratio = _spot_ratio(self.seed, offer_id, _price_cell(self.seed, offer_id, at_ms))
        return int(self._on_demand[offer_id] * ratio) // _TICK_NANO_USD * _TICK_NANO_USD

    def last_change(self, offer_id: str, at_ms: int) -> int:
        """The last time at or before `at_ms` at which the price may have changed (OPENED_MS if it never does)."""
        if offer_id not in self._spot:
            return OPENED_MS
        cell = _price_cell(self.seed, offer_id, at_ms)
        return max(OPENED_MS, _change_instant(self.seed, offer_id, cell))

    def changes_between(self, offer_id: str, after_ms: int, until_ms: int) -> list[int]:
        """Times in (after_ms, until_ms] at which the price may change, ascending, in whole seconds."""
        if offer_id not in self._spot:
            return []
        cells = range(after_ms // _PRICE_CELL_MS, until_ms // _PRICE_CELL_MS + 1)
        instants = (_change_instant(self.seed, offer_id, cell) for cell in cells)
        return [at for at in instants if after_ms < at <= until_ms]

    def capacity(self, offer_id: str, at_ms: int) -> int | None:
        """How many machines this pool has in total (0: none now); None: unlimited (on-demand)."""
        if offer_id not in self._spot:
            return None
        phase = int(_uniform(self.seed, "capacity phase", offer_id, 0) * _CAPACITY_CELL_MS)
        cell = (at_ms + phase) // _CAPACITY_CELL_MS
        if _uniform(self.seed, "drought", offer_id, cell) < 0.12:
            return 0
        return 1 + int(4 * _uniform(self.seed, "capacity", offer_id, cell))

    def hazard_per_hour(self, offer_id: str) -> float:
        """Expected preemptions of this pool per market hour (0.0 for on-demand)."""
        if offer_id not in self._spot:
            return 0.0
        return 0.01 + 0.09 * _uniform(self.seed, "hazard", offer_id, 0)

    def reclaim_after(self, offer_id: str, after_ms: int) -> Reclaim | None:
        """The first preemption of a pool after `after_ms`; None if there is none within 30 days."""
        return _reclaim_after(self.seed, offer_id, self.hazard_per_hour(offer_id), after_ms)


@lru_cache(maxsize=1024)
def _reclaim_after(seed: int, offer_id: str, hazard_per_hour: float, after_ms: int) -> Reclaim | None:
    probability = -math.expm1(-hazard_per_hour * _RECLAIM_CELL_MS / (60 * _MINUTE_MS))
    first = after_ms // _RECLAIM_CELL_MS
    for cell in range(first, first + _RECLAIM_HORIZON_CELLS):
        if _uniform(seed, "reclaim", offer_id, cell) >= probability:
            continue
        seconds = int(_uniform(seed, "reclaim second", offer_id, cell) * (_RECLAIM_CELL_MS // _SECOND_MS))
        at_ms = cell * _RECLAIM_CELL_MS + seconds * _SECOND_MS
        if at_ms > after_ms:
            return Reclaim(at_ms, _uniform(seed, "notice", offer_id, cell) < 0.75)
    return None


def _price_cell(seed: int, offer_id: str, at_ms: int) -> int:
    """The cell whose price is in force: the current one, or the previous one until the change of this cell."""
    cell = at_ms // _PRICE_CELL_MS
    return cell if _change_instant(seed, offer_id, cell) <= at_ms else cell - 1


@lru_cache(maxsize=8192)
def _change_instant(seed: int, offer_id: str, cell: int) -> int:
    seconds = int(_uniform(seed, "jitter", offer_id, cell) * (_PRICE_JITTER_S + 1))
    return cell * _PRICE_CELL_MS + seconds * _SECOND_MS


@lru_cache(maxsize=8192)
def _spot_ratio(seed: int, offer_id: str, cell: int) -> float:
    """Spot price divided by on-demand price in a cell: mean-reverting around the pool's level, with spikes and dips."""
    event = _uniform(seed, "event", offer_id, cell)
    size = _uniform(seed, "event size", offer_id, cell)
    if event < 0.03:
        return 1.05 + 0.45 * size
    if event < 0.07:
        return 0.18 + 0.04 * size
    mean = 0.28 + 0.17 * _uniform(seed, "level", offer_id, 0)
    wander = sum(_REVERSION**age * _normal(seed, offer_id, cell - age) for age in range(_MEMORY))
    return min(max(mean * math.exp(0.15 * math.sqrt(1 - _REVERSION**2) * wander), 0.22), 0.65)


@lru_cache(maxsize=8192)
def _normal(seed: int, offer_id: str, cell: int) -> float:
    """Approximately standard normal: the sum of three uniform numbers, scaled to variance 1."""
    return 2 * (sum(_uniform(seed, f"noise {i}", offer_id, cell) for i in range(3)) - 1.5)


def _uniform(seed: int, what: str, offer_id: str, cell: int) -> float:
    """A number in [0, 1) determined by the arguments."""
    digest = blake2b(f"{seed}|{what}|{offer_id}|{cell}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
