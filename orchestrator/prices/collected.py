"""Collected prices of clouds that are not enabled, merged with the catalogue. Nothing can be rented there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.config.store_url import file_of_url
from orchestrator.prices.merge import Kind, ReportedPrice, merged
from providers.catalog import load
from providers.collect.facts import Signal
from providers.offer import CapacityType

if TYPE_CHECKING:  # a command that only needs the catalogue loads no database
    from orchestrator.config import Config
    from orchestrator.installation import Installation


@dataclass(frozen=True, slots=True)
class Collected:
    """Prices reported by sources; the kinds that a source no longer lists, with the time when this was seen (ms); and
    interruption risks."""

    reported: tuple[ReportedPrice, ...] = ()
    gone: Mapping[Kind, int] = field(default_factory=dict)
    risks: tuple[Signal, ...] = ()


NOTHING = Collected()


def collected(installation: Installation, at_ms: int | None = None) -> Collected:
    """What the store knew at `at_ms` (real time; None: now) about clouds that are not enabled, without flagged rows."""
    from orchestrator.prices.sink import provider_of_source
    from orchestrator.prices.sources import SOURCES
    from orchestrator.store.market.polls import ALL_REGIONS
    from providers.collect.sources import fresh_s, history_of

    now = installation.outside_clock.now_ms() if at_ms is None else at_ms
    with installation.store.read() as tx:
        offers = {offer.id: offer for offer in tx.offers() if offer.provider not in installation.providers}
        points = [point for point in tx.eligible_as_of(now) if point.offer_id in offers]
        answered = {(each.source, each.region): each.good_started_ms or 0 for each in tx.poll_states()}
        gone: dict[Kind, int] = {}
        for each in tx.gone():
            from_a_feed = each.provider in SOURCES and provider_of_source(each.source) != each.provider
            if (
                history_of(each.source) != "only" and not from_a_feed
            ):  # an offer that a feed does not list may still exist
                capacity = CapacityType.SPOT if each.spot else CapacityType.ON_DEMAND
                gone[Kind(each.provider, each.region, each.instance_type, capacity)] = each.at_ms
        sources = tx.sources()
        risks = tuple(tx.risks_as_of(now))
    reported = []
    for point in points:
        offer, source = offers[point.offer_id], sources.get(point.offer_id, "")
        until_ms = max(answered.get((source, region), 0) for region in (offer.region, *ALL_REGIONS))
        reported.append(ReportedPrice(offer, point, max(until_ms, point.observed_at_ms), point.source, fresh_s(source)))
    return Collected(tuple(reported), gone, risks)


def elsewhere(known: Collected, without: Collection[str]) -> tuple[ReportedPrice, ...]:
    """The prices of all clouds except `without`: the collected prices `known`, merged with the catalogue. Raises
    CatalogError."""
    catalog = load()
    listed = [
        ReportedPrice(offer, price, price.observed_at_ms, f"catalogue of {catalog.date}: {price.source}")
        for offer, price in zip(catalog.offers(), catalog.prices(), strict=True)
        if offer.provider not in without
    ]
    return merged(known.reported, listed, known.gone)


def may_have_collected(config: Config) -> bool:
    """Whether a store may exist, without opening or creating it."""
    file = file_of_url(config.store_url)
    return file is None or file.exists()
