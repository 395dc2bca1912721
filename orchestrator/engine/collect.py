"""Collect: what providers offer and ask, into the store. Must not know: jobs, policies.

A provider that fails leaves a poll record with its error, so that "no change" and "no data" stay different facts.
"""

from __future__ import annotations

from orchestrator.engine.world import World
from providers.base import Provider, ProvidesPriceHistory
from providers.errors import ProviderError
from providers.price import PricePoint


def collect(world: World) -> int:
    """Poll every enabled provider once. Returns how many prices changed."""
    return sum(_collect(world, provider) for provider in world.providers.values())


def _collect(world: World, provider: Provider) -> int:
    started = world.clock.now_ms()
    try:
        offers = provider.offers()
        prices = _prices(world, provider)
    except ProviderError as error:
        with world.store.write() as tx:
            tx.record_poll(provider.name, started, world.clock.now_ms(), 0, 0, str(error))
        return 0
    with world.store.read() as tx:
        known = {offer.id for offer in tx.offers() if offer.provider == provider.name}
    with world.store.write() as tx:
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
