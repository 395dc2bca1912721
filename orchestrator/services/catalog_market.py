"""The catalogue as a market to decide in: its offers and prices, its hazards and transfer prices.

Its prices are as old as they say, so decisions about it use `CATALOGUE_RAILS`. Must not know: stores, enabled
providers' machines.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from orchestrator.engine import public
from orchestrator.market import Market
from orchestrator.policy import Rails
from providers.catalog import load

CATALOGUE_RAILS = Rails(max_price_age_s=math.inf)


def catalogue_market(now_ms: int, *, without: Collection[str] = ()) -> Market:
    """The market of all clouds of the catalogue but those of `without`. Raises CatalogError."""
    catalog = load()
    kept = [
        (offer, price)
        for offer, price in zip(catalog.offers(), catalog.prices(), strict=True)
        if offer.provider not in without
    ]
    offers = [offer for offer, _ in kept]
    return Market.as_of(
        now_ms,
        offers=offers,
        prices=[price for _, price in kept],
        priors=public.hazard_priors(offers),
        tariff=public.tariff(offers),
    )
