"""Transfer: the cost of moving bytes between zones, regions and clouds.

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
    """One rate per provider between its regions, one for leaving the provider, and 0 inside a region. Simulated clouds
    bill these rates; for the other clouds they are an estimate."""

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD for 10^9 bytes from one location to another; 0 inside a region."""
        return charges.egress_rate(source, target)


TYPICAL: Tariff = TypicalTariff()
OWN_STORE: Location = ("own", "")
"""The location of a store that belongs to no cloud. Fetching from it is assumed to be free."""


def rate_between(tariff: Tariff, source: Location, target: Location) -> int:
    """nano-USD for 10^9 bytes. Within a cloud, an unknown region is assumed to be the same as the other one."""
    if source[0] == OWN_STORE[0] or (source[0] == target[0] and not (source[1] and target[1])):
        return 0
    return tariff.rate(source, target)


def fetched_from(bucket: Location, saved_at: Location | None) -> Location:
    """The location of a checkpoint that is kept in `bucket` and was last saved by a machine at `saved_at`. If the
    bucket's region is not known and its cloud is that machine's, the machine's region is assumed."""
    return bucket if bucket[1] or saved_at is None or saved_at[0] != bucket[0] else saved_at[:2]


def egress_nano_usd(source: Location, target: Location, size_bytes: int, tariff: Tariff = TYPICAL) -> int:
    """nano-USD for `size_bytes` from one location to another."""
    return charges.egress_nano_usd(tariff.rate(source, target), size_bytes)
