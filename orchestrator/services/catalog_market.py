"""The catalogue as a market to decide in: its offers and prices, its hazards and transfer prices; and in place of its
prices those that were collected.

Its prices are as old as they say, so decisions about it use `CATALOGUE_RAILS`. Must not know: stores, enabled
providers' machines.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from orchestrator.engine import public
from orchestrator.market import Market
from orchestrator.policy import Rails
from orchestrator.services.collected import NOTHING, Collected
from providers.catalog import load

CATALOGUE_RAILS = Rails(max_price_age_s=math.inf)


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
    offers = [offer for offer, _ in kept]
    return Market.as_of(
        now_ms,
        offers=offers,
        prices=[price for _, price in kept],
        polls=[((each.provider, each.region, each.spot), each.until_ms) for each in heard.polled],
        priors=public.hazard_priors(offers, heard.risks),
        tariff=public.tariff(offers),
    )
