"""What it costs to move bytes between zones, regions and clouds. Must not know: what the bytes are.

Rates are per 10^9 bytes, charged by the source. A `Tariff` says them; `TYPICAL` is used where none is given: figures of
a provider, not of a pair of regions, enough to keep a policy from chasing cents with terabytes.
"""

from __future__ import annotations

from typing import Protocol

from providers import charges

Place = tuple[str, ...]
"""(provider, region[, zone]). An empty region is one that is not known, and taken for the nearest; without a zone it is
anywhere in the region."""

# Public price lists (AWS, Azure: 2024-01; GCP: 2026-07). AWS between its regions mostly 0.02, GCP up to 0.08 between
# continents, Azure up to 0.05; to the internet AWS 0.09, GCP 0.12, Azure 0.087. `local` is simulated, and cheap.
_WITHIN = {"aws": 20_000_000, "gcp": 80_000_000, "azure": 50_000_000, "local": 10_000_000}
_ACROSS = {"aws": 90_000_000, "gcp": 120_000_000, "azure": 87_000_000, "local": 20_000_000}
_WITHIN_OTHER = 50_000_000
_ACROSS_OTHER = 90_000_000


class Tariff(Protocol):
    """Transfer prices."""

    def rate(self, source: Place, target: Place) -> int:
        """nano-USD for 10^9 bytes from one place to another."""
        ...


class TypicalTariff:
    """One rate per provider within it, one out of it, none inside a region."""

    def rate(self, source: Place, target: Place) -> int:
        """nano-USD for 10^9 bytes from one place to another; 0 inside a region."""
        provider, region, *_ = source
        if provider != target[0]:
            return _ACROSS.get(provider, _ACROSS_OTHER)
        if region == target[1]:
            return 0
        return _WITHIN.get(provider, _WITHIN_OTHER)


TYPICAL: Tariff = TypicalTariff()


def egress_nano_usd(source: Place, target: Place, size_bytes: int, tariff: Tariff = TYPICAL) -> int:
    """nano-USD for `size_bytes` from one place to another."""
    return charges.egress_nano_usd(tariff.rate(source, target), size_bytes)
