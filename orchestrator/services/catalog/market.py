"""The market of clouds that are not enabled: collected prices, else those of the catalogue, with its hazards and
transfer prices.

The prices may be old, so decisions use `catalogue_limits`: prices older than `prices.max_age_days` are left out, and
older prices than usual count as higher and less certain.
"""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.config import Config
from orchestrator.engine.inputs import priors
from orchestrator.market import Market
from orchestrator.policy import MoveLimits
from orchestrator.prices.collected import NOTHING, Collected, elsewhere


def catalogue_limits(config: Config) -> MoveLimits:
    """The limits for decisions about this market."""
    return MoveLimits(max_price_age_s=config.prices.max_age_days * 86_400.0)


def catalogue_market(now_ms: int, *, without: Collection[str] = (), heard: Collected = NOTHING) -> Market:
    """The market of all clouds except `without`: the collected prices `heard`, else those of the catalogue. `now_ms` is
    real time. Raises CatalogError."""
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
