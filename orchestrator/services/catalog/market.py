"""Clouds that are not enabled as a market to decide in: what was collected of them and what the catalogue says, its
hazards and transfer prices.

Its prices are as old as they say, so decisions about it use `catalogue_limits`: what is older than
`prices.max_age_days` is left out, and what is older than usual counts as higher and less certain.
"""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.config import Config
from orchestrator.engine.inputs import priors
from orchestrator.market import Market
from orchestrator.policy import MoveLimits
from orchestrator.prices.collected import NOTHING, Collected, elsewhere


def catalogue_limits(config: Config) -> MoveLimits:
    """The limits of decisions about it."""
    return MoveLimits(max_price_age_s=config.prices.max_age_days * 86_400.0)


def catalogue_market(now_ms: int, *, without: Collection[str] = (), heard: Collected = NOTHING) -> Market:
    """The market of all clouds but those of `without`: what was `heard` of them, and else the catalogue. Raises
    CatalogError."""
    reported = elsewhere(heard, without)
    offers = [each.offer for each in reported]
    return Market.as_of(
        now_ms,
        offers=offers,
        prices=[each.dated_price for each in reported],
        fresh_s={each.offer.id: each.fresh_s for each in reported},
        priors=priors.hazard_priors(offers, heard.risks),
        tariff=priors.tariff(offers),
    )
