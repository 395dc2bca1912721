"""The catalogue as a market to decide in: its offers and prices, its hazards and transfer prices; and in place of its
prices those that were collected.

Its prices are as old as they say, so decisions about it use `CATALOGUE_RAILS`. Must not know: stores, enabled
providers' machines.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from orchestrator.market import HazardPrior, Market
from orchestrator.policy import Rails
from orchestrator.services.collected import NOTHING, Collected
from providers.catalog import load

CATALOGUE_RAILS = Rails(max_price_age_s=math.inf)

# The public buckets count machines and not hours. AWS V100 stood in the top one in every region, and lost a machine in
# 8 h in one good zone over 45.6 days of 2023: machines that run for 3.45 h make the one figure of the other.
EXPOSURE_H = 3.45


def catalogue_market(now_ms: int, *, without: Collection[str] = (), heard: Collected = NOTHING) -> Market:
    """The market of all clouds but those of `without`: what was `heard` of them, and else the catalogue. Raises
    CatalogError."""
    catalog = load()
    places = heard.places
    kept = [
        *heard.offers,
        *(
            (offer, price)
            for offer, price in zip(catalog.offers(), catalog.prices(), strict=True)
            if offer.provider not in without and (offer.provider, offer.region) not in places
        ),
    ]
    return Market.as_of(
        now_ms,
        offers=[offer for offer, _ in kept],
        prices=[price for _, price in kept],
        polls=[((each.provider, each.region, each.spot), each.until_ms) for each in heard.polled],
        priors={
            key: HazardPrior(1 / seen.hazard_per_hour(EXPOSURE_H), seen.source)
            for key, seen in catalog.interruptions.items()
        },
        tariff=catalog.egress(),
    )
