"""Priors: what is known of every market before any measurement: egress tariffs and interruption rates.

Both are in the catalogue. Collected interruption rates are newer and replace the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.market import TYPICAL, HazardPrior, Location, Shape, Tariff
from providers.catalog import Catalog, Interruption, load
from providers.collect.facts import Signal
from providers.offer import Offer

# The public buckets count machines, not hours. AWS V100 was in the top bucket in every region, and lost a machine every
# 8 h in one good zone over 45.6 days of 2023: an exposure of 3.45 h per machine reconciles the two figures.
EXPOSURE_H = 3.45

COLLECTED = {"interruption_percent": EXPOSURE_H, "eviction_percent": 1.0}
"""Kinds of signals that state a loss rate, with the hours that it covers: Azure's rates are per hour
(learn.microsoft.com, "Use Azure Spot Virtual Machines"). Other kinds have no time base."""


def tariff(offers: Iterable[Offer | Shape]) -> Tariff:
    """The price of moving bytes between the locations of these offers. Raises CatalogError."""
    providers = {(offer.provider, offer.simulated) for offer in offers}
    simulated = frozenset(name for name, is_simulated in providers if is_simulated)
    if len(simulated) == len(providers):
        return TYPICAL
    return _Mixed(load().egress(), simulated) if simulated else load().egress()


@dataclass(frozen=True)
class _Mixed:
    """The listed tariff, except for simulated clouds, which bill their own tariff."""

    listed: Tariff
    simulated: frozenset[str]

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD for 10^9 bytes from one location to another."""
        return (TYPICAL if target[0] in self.simulated else self.listed).rate(source, target)


def hazard_priors(
    offers: Iterable[Offer | Shape], collected: Iterable[Signal] = ()
) -> Mapping[tuple[str, str, str], HazardPrior]:
    """Known interruption rates by (provider, region, instance type); none for simulated machines. Raises
    CatalogError."""
    if all(offer.simulated for offer in offers):
        return {}
    newer = {(each.provider, each.region, each.instance_type): _prior(each) for each in collected if _counts(each)}
    listed = _priors(load())
    return {**listed, **newer} if newer else listed


def _counts(signal: Signal) -> bool:
    return signal.kind in COLLECTED and not signal.zone and signal.high > 0


def _prior(signal: Signal) -> HazardPrior:
    high = None if signal.high >= 100 else signal.high / 100
    seen = Interruption(signal.low / 100, high, signal.observed_at_ms, signal.source)
    return HazardPrior(1 / seen.hazard_per_hour(COLLECTED[signal.kind]), seen.source)


@lru_cache(maxsize=1)
def _priors(catalog: Catalog) -> Mapping[tuple[str, str, str], HazardPrior]:
    return {
        key: HazardPrior(1 / seen.hazard_per_hour(EXPOSURE_H), seen.source)
        for key, seen in catalog.interruptions.items()
    }
