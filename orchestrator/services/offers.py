"""Offers: what can be rented, and for how much. Must not know: jobs."""

from __future__ import annotations

from orchestrator.engine.world import World
from orchestrator.errors import UsageError, did_you_mean
from orchestrator.services.jobs import simulated
from orchestrator.services.plan import freshen
from orchestrator.services.views import OfferList, OfferRow
from orchestrator.store import Tx
from providers.hardware import GPUS, canonical_gpu


def offers(world: World, *, gpu: str | None = None, provider: str | None = None, spot: bool | None = None) -> OfferList:
    """Every offer that matches, cheapest first; those without a known price last. Raises UsageError."""
    kind = _gpu(gpu)
    if provider is not None and provider not in world.providers:
        raise UsageError(f"provider {provider} is not enabled", hint=f"enabled: {', '.join(sorted(world.providers))}")
    freshen(world)
    now = world.clock.now_ms()
    with world.store.read() as tx:
        prices = {point.offer_id: point for point in tx.prices_as_of(now)}
        asked = {name: _asked_ms(tx, name) for name in world.providers}
        rows = []
        for offer in tx.offers():
            if kind not in (None, offer.gpu) or provider not in (None, offer.provider):
                continue
            if spot is not None and spot is not offer.spot:
                continue
            price, at = prices.get(offer.id), asked.get(offer.provider)
            rows.append(
                OfferRow(
                    id=offer.id,
                    provider=offer.provider,
                    region=offer.region,
                    zone=offer.zone,
                    instance_type=offer.instance_type,
                    gpu=offer.gpu,
                    gpu_count=offer.gpu_count,
                    vcpu=offer.vcpu,
                    memory_bytes=offer.memory_bytes,
                    spot=offer.spot,
                    nano_usd_per_hour=price.nano_usd_per_hour if price is not None else None,
                    effective_at_ms=price.effective_at_ms if price is not None else None,
                    age_s=(now - at) / 1000 if at is not None else None,
                    source=price.source if price is not None else "",
                    simulated=offer.simulated or simulated(world, offer.id),
                )
            )
    rows.sort(key=lambda row: (row.nano_usd_per_hour is None, row.nano_usd_per_hour or 0, row.id))
    return OfferList(at_ms=now, offers=tuple(rows), simulated=any(row.simulated for row in rows))


def _gpu(name: str | None) -> str | None:
    if name is None:
        return None
    kind = canonical_gpu(name)
    if kind is None:
        raise UsageError(
            f"{name} is no GPU that is known here", hint=did_you_mean(name, GPUS) or "see: tradewind offers"
        )
    return kind


def _asked_ms(tx: Tx, provider: str) -> int | None:
    """When the provider last answered: the age of all its prices, changed or not."""
    return max((poll.finished_ms for poll in tx.polls(provider, 50) if poll.error is None), default=None)
