"""Bill: the cost of a job's machines and transfers in nano-USD, by the functions that the ledger uses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from orchestrator.arena.replay.record import Record
from orchestrator.market import Tariff
from providers.billing.charges import (
    Location,
    RateCard,
    disk_nano_usd,
    egress_nano_usd,
    minimum_nano_usd,
    rate_card,
    requests_nano_usd,
    storage_nano_usd,
)


@dataclass(slots=True)
class Bill:
    """The settled amounts of one job, by purpose. `stored_bytes` of checkpoints are kept as long as a machine is
    billed."""

    record: Record
    tariff: Tariff
    stored_bytes: int
    settled: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The settled amount in nano-USD."""
        return sum(self.settled.values())

    def copy(self) -> Bill:
        """An independent copy."""
        return Bill(self.record, self.tariff, self.stored_bytes, Counter(self.settled))

    def accrued(self, row: int, from_ms: int, at_ms: int) -> int:
        """nano-USD for a machine that has run since `from_ms` and has not ended."""
        return sum(self._machine(row, from_ms, at_ms).values())

    def ended(self, row: int, from_ms: int, to_ms: int) -> dict[str, int]:
        """The amounts for a machine that has ended, with its minimum charge."""
        changes = self.record.between(row, from_ms, to_ms)
        least = minimum_nano_usd(self._card(row), changes, from_ms, to_ms)
        return self._machine(row, from_ms, to_ms) | {"minimum": least}

    def transfer(self, source: Location, target: Location, size_bytes: int) -> int:
        """nano-USD for moving a checkpoint."""
        egress = egress_nano_usd(self.tariff.rate(source, target), size_bytes)
        return egress + requests_nano_usd(source, target, size_bytes)

    def _machine(self, row: int, from_ms: int, to_ms: int) -> dict[str, int]:
        card = self._card(row)
        stored = storage_nano_usd(card, [(from_ms, self.stored_bytes)], from_ms, to_ms)
        return {
            "machines": self.record.cost(row, from_ms, to_ms),
            "storage": stored + disk_nano_usd(card, from_ms, to_ms),
        }

    def _card(self, row: int) -> RateCard:
        listing = self.record.listing
        return rate_card(listing.sites[int(listing.site[row])].provider)
