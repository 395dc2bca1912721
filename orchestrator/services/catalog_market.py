"""The catalogue as a market to decide in: its offers and prices, its hazards and transfer prices.

Its prices are as old as they say, so decisions about it use `CATALOGUE_RAILS`. Must not know: stores, enabled
providers' machines.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from orchestrator.market import HazardPrior, Market
from orchestrator.policy import Rails
from providers.catalog import load

CATALOGUE_RAILS = Rails(max_price_age_s=math.inf)

# The public buckets count machines and not hours. AWS V100 stood in the top one in every region, and lost a machine in
# 8 h in one good zone over 45.6 days of 2023: machines that run for 3.45 h make the one figure of the other.
EXPOSURE_H = 3.45


def catalogue_market(now_ms: int, *, without: Collection[str] = ()) -> Market:
    """The market of all clouds of the catalogue but those of `without`. Raises CatalogError."""
    catalog = load()
    kept = [
        (offer, price)
        for offer, price in zip(catalog.offers(), catalog.prices(), strict=True)
        if offer.provider not in without
    ]
    return Market.as_of(
        now_ms,
        offers=[offer for offer, _ in kept],
        prices=[price for _, price in kept],
        priors={
            key: HazardPrior(1 / seen.hazard_per_hour(EXPOSURE_H), seen.source)
            for key, seen in catalog.interruptions.items()
        },
        tariff=catalog.egress(),
    )
