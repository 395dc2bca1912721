"""Priors: what is known of any market, whoever collects its prices: egress tariffs, interruption rates.

Both are in the catalogue; interruption rates that were collected are newer and stand in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.market import TYPICAL, HazardPrior, Location, Shape, Tariff
from providers.catalog import Catalog, Interruption, load
from providers.collect.facts import Signal
from providers.offer import Offer

# The public buckets count machines and not hours. AWS V100 stood in the top one in every region, and lost a machine in
# 8 h in one good zone over 45.6 days of 2023: machines that run for 3.45 h make the one figure of the other.
EXPOSURE_H = 3.45

COLLECTED = {"interruption_percent": EXPOSURE_H, "eviction_percent": 1.0}
"""Kinds of signals that say how often machines are lost, and in how many hours: Azure's rates are of one hour
(learn.microsoft.com, "Use Azure Spot Virtual Machines"). Other kinds say nothing of time."""


def tariff(offers: Iterable[Offer | Shape]) -> Tariff:
    """What moving bytes costs between the sites of these offers. Raises CatalogError."""
    providers = {(offer.provider, offer.simulated) for offer in offers}
    simulated = frozenset(name for name, is_simulated in providers if is_simulated)
    if len(simulated) == len(providers):
        return TYPICAL
    return _Mixed(load().egress(), simulated) if simulated else load().egress()


@dataclass(frozen=True)
class _Mixed:
    """To a simulated cloud bytes cost what that bills for them."""

    listed: Tariff
    simulated: frozenset[str]

    def rate(self, source: Location, target: Location) -> int:
        """nano-USD for 10^9 bytes from one place to another."""
        return (TYPICAL if target[0] in self.simulated else self.listed).rate(source, target)


def hazard_priors(
    offers: Iterable[Offer | Shape], collected: Iterable[Signal] = ()
) -> Mapping[tuple[str, str, str], HazardPrior]:
    """What is known of interruptions, by (provider, region, instance type); of simulated machines nothing. Raises
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
