"""Collect: what providers offer and ask, into the store. Must not know: jobs, policies.

A provider that fails leaves a poll record with its error, so that "no change" and "no data" stay different facts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from orchestrator.engine.price_sink import StoreSink
from orchestrator.engine.world import World
from orchestrator.store import Leadership, Store
from providers.base import Provider, ProvidesPriceHistory
from providers.clock import Clock
from providers.collect.facts import Flag
from providers.collect.runner import Collector, Known, Poll, SourceSpec
from providers.errors import ProviderError
from providers.price import PricePoint

MOST_FLAGS = 10_000
"""Open flags looked through for outliers, the newest first: far more than a market has."""


def collect(world: World, leadership: Leadership | None = None) -> int:
    """Poll every enabled provider once. Returns how many prices changed.

    `leadership` is that of whoever acts on the store; None only for a person who looks at the market while nobody acts.
    Raises NotLeaderError.
    """
    return sum(collect_from(world, leadership, provider) for provider in world.providers.values())


def collector(
    store: Store,
    clock: Clock,
    specs: Sequence[SourceSpec],
    chance: random.Random,
    told: Callable[[Poll], None] = lambda _: None,
    *,
    leadership: Leadership | None = None,
) -> Collector:
    """A collector from `specs` into `store`, which goes on where the last one ended. Its child processes import what
    the sources need; `told` hears of each region's poll once it is stored. `leadership`: as for `collect`."""

    def recall() -> Known:
        with store.read() as tx:
            offers = {offer.id: offer for offer in tx.offers()}
            doubted = [each for each in tx.flags(limit=MOST_FLAGS) if each.flag == Flag.OUTLIER.value]
            states = {(state.source, state.region): state for state in tx.poll_states()}
            return Known(
                [(offers[point.offer_id], point) for point in tx.newest_prices()],
                {place: state.newest_ms for place, state in states.items() if state.newest_ms is not None},
                {each.subject: each.nano_usd_per_hour for each in doubted if each.nano_usd_per_hour is not None},
                frozenset(place for place, state in states.items() if state.failures),
            )

    return Collector(specs, StoreSink(store, told, leadership), clock, chance, recall=recall)


def collect_from(world: World, leadership: Leadership | None, provider: Provider) -> int:
    """Poll one provider. Returns how many prices changed. Raises NotLeaderError."""
    started = world.clock.now_ms()
    try:
        offers = provider.offers()
        prices = _prices(world, provider)
    except ProviderError as error:
        with world.store.write(leadership) as tx:
            tx.record_poll(provider.name, started, world.clock.now_ms(), 0, 0, str(error))
        return 0
    with world.store.read() as tx:
        known = {offer.id for offer in tx.offers() if offer.provider == provider.name}
    with world.store.write(leadership) as tx:
        if known != {offer.id for offer in offers}:
            tx.put_offers(provider.name, offers)
        changed = tx.add_prices(prices)
        tx.record_poll(provider.name, started, world.clock.now_ms(), len(offers), changed, None)
    return changed


def _prices(world: World, provider: Provider) -> list[PricePoint]:
    """All changes since the last good poll where the provider can tell them, else the prices in force."""
    if isinstance(provider, ProvidesPriceHistory):
        with world.store.read() as tx:
            known_ms = tx.last_good_poll_ms(provider.name)
        if known_ms is not None:
            return list(provider.price_history(known_ms))
    return list(provider.prices())
