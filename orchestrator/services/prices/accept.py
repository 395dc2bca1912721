"""Accepts a flagged price, which is stored but not used."""

from __future__ import annotations

import random

from orchestrator.errors import NotFoundError, UsageError, did_you_mean
from orchestrator.installation import Installation
from orchestrator.model import Event, new_id
from orchestrator.prices.views import AcceptedPrice
from orchestrator.services.caller import Caller
from orchestrator.services.offers.ids import checked_offer_id
from orchestrator.store import Tx
from providers.collect.facts import Flag
from providers.money import format_usd
from providers.offer import provider_of
from providers.price import PricePoint

LIFTED = (Flag.IMPLAUSIBLE.value, Flag.OUTLIER.value)
"""Flags that a user can override. The others state facts: the offer is not sold, or spot is not below on-demand."""


def accept(installation: Installation, offer_id: str, *, caller: Caller) -> AcceptedPrice:
    """Makes the latest reported price of an offer valid until it changes implausibly again.

    Raises NotFoundError for an unknown offer, UsageError if its price is not flagged, StoreError.
    """
    offer_id, now_ms = checked_offer_id(offer_id), installation.clock.now_ms()
    with installation.store.write() as tx:
        found = tx.find_offers(offer_id=offer_id)
        if not found:
            ids = [each.id for each in tx.find_offers(provider=provider_of(offer_id))]
            raise NotFoundError(
                f"unknown offer {offer_id}", hint=did_you_mean(offer_id, ids) or "tradewind prices status"
            )
        seen_ms = (installation.clock if found[0].simulated else installation.outside_clock).now_ms()
        lifted = tx.clear_flags(offer_id, LIFTED, seen_ms)
        if not lifted:
            raise _nothing_to_accept(tx, offer_id)
        last = lifted[-1]
        if last.unconfirmed and last.nano_usd_per_hour is not None and last.effective_at_ms is not None:
            said = PricePoint(offer_id, last.nano_usd_per_hour, last.effective_at_ms, seen_ms, last.source)
            tx.add_prices([said])
        price = last.nano_usd_per_hour or 0
        message = f"accepted {format_usd(price)}/h for {offer_id}; it was flagged {last.flag}: {last.detail}"
        event_id = new_id("ev", now_ms, random.SystemRandom())
        tx.add_event(
            Event(
                event_id,
                now_ms,
                "price.accepted",
                message,
                caller.actor,
                data={"offer_id": offer_id, "nano_usd_per_hour": price, "flag": last.flag, "source": last.source},
                project=caller.project,
                owner=caller.owner,
            )
        )
    return AcceptedPrice(offer_id, price, last.flag, last.detail, last.source)


def _nothing_to_accept(tx: Tx, offer_id: str) -> UsageError:
    others = [each for each in tx.flags_of(offer_id) if each.cleared_ms is None]
    if others:
        return UsageError(
            f"{offer_id} is flagged {others[-1].flag}, which cannot be accepted: {others[-1].detail}",
            hint="choose another offer: tradewind offers",
        )
    return UsageError(f"the price of {offer_id} is not flagged", hint="flagged prices: tradewind prices status")
