"""PricePoint: an offer's price from an instant on, and when we learned it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PricePoint:
    """`nano_usd_per_hour` holds for the whole instance from `effective_at_ms` until the next point of the offer.

    `observed_at_ms` is when we learned it; a decision at t may use only points with observed_at_ms <= t.
    `source` says where it came from, for people ("local market (simulated)", "AWS DescribeSpotPriceHistory").
    """

    offer_id: str
    nano_usd_per_hour: int
    effective_at_ms: int
    observed_at_ms: int
    source: str
