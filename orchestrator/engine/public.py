"""Public: what the catalogue knows of any market, whoever collects its prices: egress tariffs, interruption rates.

Must not know: stores, jobs, prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from orchestrator.market import TYPICAL, HazardPrior, Tariff
from providers.catalog import load
from providers.offer import Offer

# The public buckets count machines and not hours. AWS V100 stood in the top one in every region, and lost a machine in
# 8 h in one good zone over 45.6 days of 2023: machines that run for 3.45 h make the one figure of the other.
EXPOSURE_H = 3.45


def tariff(offers: Iterable[Offer]) -> Tariff:
    """What moving bytes costs between the sites of these offers. Raises CatalogError."""
    return load().egress() if any(not offer.simulated for offer in offers) else TYPICAL


def hazard_priors(offers: Iterable[Offer]) -> Mapping[tuple[str, str, str], HazardPrior]:
    """What is known of interruptions, by (provider, region, instance type); of simulated machines nothing. Raises
    CatalogError."""
    return _priors() if any(not offer.simulated for offer in offers) else {}


@cache
def _priors() -> Mapping[tuple[str, str, str], HazardPrior]:
    return {
        key: HazardPrior(1 / seen.hazard_per_hour(EXPOSURE_H), seen.source)
        for key, seen in load().interruptions.items()
    }
