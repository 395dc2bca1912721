"""Egress estimates: what real clouds are expected to bill for fetching a checkpoint from its bucket.

The bill of the bucket's cloud states this traffic in sums that name no job. So Tradewind books it by list price, as a
separate kind of entry. Simulated clouds bill it with the machine (providers.billing.charges).
"""

from __future__ import annotations

from orchestrator.market import TYPICAL, Location, fetched_from, rate_between
from orchestrator.market.transfer import Tariff
from providers.billing.charges import Usage, egress_nano_usd, rate_card
from providers.catalog import load
from providers.errors import ProviderError


def fetched(at: Location, saved_at: Location | None, bucket: Location | None) -> Location | None:
    """The place from which a machine at `at` fetches a checkpoint that a machine at `saved_at` saved last; None if that
    is not billed."""
    if rate_card(at[0]).bills_checkpoints:
        return saved_at
    return None if bucket is None or saved_at is None else fetched_from(bucket, saved_at)


def estimated_nano_usd(usage: Usage | None, tariff: Tariff | None = None) -> int:
    """nano-USD for the checkpoint that was fetched to a machine; 0 if its provider bills that itself."""
    if usage is None or not usage.moved_bytes or not usage.moved_from or rate_card(usage.at[0]).bills_checkpoints:
        return 0
    return egress_nano_usd(list_rate(usage.moved_from, usage.at, tariff), usage.moved_bytes)


def list_rate(source: Location, target: Location, tariff: Tariff | None = None) -> int:
    """nano-USD for 10^9 bytes by the catalogue's list prices."""
    return rate_between(_listed() if tariff is None else tariff, source, target)


def _listed() -> Tariff:
    try:
        return load().egress()
    except ProviderError:  # the books of a machine are closed anyway
        return TYPICAL
