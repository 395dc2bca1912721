"""Transfer: what it costs to move bytes between zones, regions and clouds.

Rates are per 10^9 bytes, charged by the source. A `Tariff` has them. `TYPICAL` is the default: one figure per provider
instead of per pair of regions, which is enough to keep the policy from moving terabytes to save cents.
"""

from __future__ import annotations

from typing import Protocol

from providers.billing import charges
from providers.billing.charges import Location


class Tariff(Protocol):
    """Transfer prices."""

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD for 10^9 bytes from one location to another."""
        ...


class TypicalTariff:
    """One rate per provider within it, one out of it, and none inside a region: what simulated clouds bill, and an
    estimate for the others."""

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD for 10^9 bytes from one location to another; 0 inside a region."""
        return charges.egress_rate(source, target)


TYPICAL: Tariff = TypicalTariff()
OWN_STORE: Location = ("own", "")
"""Where a store is that belongs to no cloud: nobody is known to bill what is fetched from it."""


def rate_between(tariff: Tariff, source: Location, target: Location) -> int:
    """nano-USD for 10^9 bytes. An unknown region is assumed to be the other one's."""
    if source[0] == OWN_STORE[0] or (source[0] == target[0] and not (source[1] and target[1])):
        return 0
    return tariff.rate(source, target)


def fetched_from(bucket: Location, saved_at: Location | None) -> Location:
    """Where a checkpoint is fetched from that is kept in `bucket` and was saved last by a machine at `saved_at`. A
    bucket of that machine's cloud whose region is not known is assumed to be in the machine's region."""
    return bucket if bucket[1] or saved_at is None or saved_at[0] != bucket[0] else saved_at[:2]


def egress_nano_usd(source: Location, target: Location, size_bytes: int, tariff: Tariff = TYPICAL) -> int:
    """nano-USD for `size_bytes` from one location to another."""
    return charges.egress_nano_usd(tariff.rate(source, target), size_bytes)
