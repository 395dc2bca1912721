"""The market of clouds and regions that are not enabled: collected prices, or else catalogue prices, with the hazards
and transfer prices of the catalogue.

The prices may be old, so decisions use `catalogue_limits`: prices older than `prices.max_age_days` are left out, and
prices that are older than usual are raised and count as less certain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.config import Config
from orchestrator.engine.inputs import priors
from orchestrator.market import Market
from orchestrator.policy import MoveLimits
from orchestrator.prices.collected import NOTHING, Collected, elsewhere
from orchestrator.prices.merge import ReportedPrice
from providers.offer import Offer


def catalogue_limits(config: Config) -> MoveLimits:
    """The limits for decisions about this market."""
    return MoveLimits(max_price_age_s=config.prices.max_age_days * 86_400.0)


def catalogue_market(now_ms: int, *, without: Collection[str] = (), heard: Collected = NOTHING) -> Market:
    """The market of all clouds except `without`: the collected prices `heard`, or else catalogue prices. `now_ms` is
    real time. Raises CatalogError."""
    return _market(now_ms, elsewhere(heard, without), heard)


def more_regions(now_ms: int, config: Config, enabled: Collection[str]) -> Market:
    """The market of regions that could be added to enabled clouds: the instance types that are configured for each
    cloud, at catalogue prices. Raises CatalogError."""
    rented = {name: table for name in enabled if (table := getattr(config.providers, name, None)) is not None}
    catalog = elsewhere(NOTHING, ())
    return _market(now_ms, [each for each in catalog if _could_be_added(each.offer, rented)], NOTHING)


def _could_be_added(offer: Offer, rented: Mapping[str, object]) -> bool:
    table = rented.get(offer.provider)
    regions: Collection[str] = getattr(table, "regions", ())
    types: Collection[str] = getattr(table, "instance_types", getattr(table, "machine_types", ()))
    return offer.instance_type in types and offer.region not in regions


def _market(now_ms: int, reported: Sequence[ReportedPrice], heard: Collected) -> Market:
    offers = [each.offer for each in reported]
    return Market.as_of(
        now_ms,
        offers=offers,
        prices=[each.dated_price for each in reported],
        fresh_s={each.offer.id: each.fresh_s for each in reported},
        priors=priors.hazard_priors(offers, heard.risks),
        tariff=priors.tariff(offers),
    )
