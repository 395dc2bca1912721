"""PricePoint: the price of an offer from a given time on, and when it was observed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PricePoint:
    """`nano_usd_per_hour` applies to the whole instance from `effective_at_ms` until the offer's next point.

    `observed_at_ms` is when we learned of it; a decision at time t may use only points with observed_at_ms <= t.
    `source` names the origin for people ("local market (simulated)", "AWS DescribeSpotPriceHistory").
    """

    offer_id: str
    nano_usd_per_hour: int
    effective_at_ms: int
    observed_at_ms: int
    source: str
