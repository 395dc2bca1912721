"""Likewise: the other zones where a job may start as well as in the chosen one, so that one launch can ask for all.

A refused launch costs seconds, and the next offer of the plan would mostly be the same machine in the zone next door.
Only jobs that run nowhere, or must leave, take whichever zone has room: for a voluntary move nothing waits, and its
gate has weighed one target. What a job must not use (an offer in back-off, just lost, excluded) is not feasible in its
plan.
"""

from __future__ import annotations

from orchestrator.model import Alternative, Placement
from providers.offer import OfferId

CLOSE = 0.05
"""How much more the other zone may cost: per hour, and until the job is finished. It is also how much later it may
finish. An estimate of ours: a refusal costs seconds, and a job of minutes pays about as much for them."""


def likewise(placement: Placement) -> tuple[str, ...]:
    """The offers that would do as well as the chosen one, in the order of the plan: the same type, bought in the same
    way, in other zones of its region, at about the same cost. None for a voluntary move, nor where the job may miss
    its limits, so that a little more makes a difference."""
    if placement.action != "place" or placement.offer_id is None or placement.chance is not None:
        return ()
    chosen = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), None)
    if chosen is None or not chosen.feasible:
        return ()
    found = (each for each in placement.alternatives if each is not chosen and each.feasible)
    return tuple(each.offer_id for each in found if _next_door(each, chosen) and _close(each, chosen))


def _next_door(one: Alternative, other: Alternative) -> bool:
    a, b = OfferId.parse(one.offer_id), OfferId.parse(other.offer_id)
    same = (a.provider, a.region, a.instance_type, a.spot) == (b.provider, b.region, b.instance_type, b.spot)
    return same and bool(a.zone) and bool(b.zone) and a.zone != b.zone


def _close(one: Alternative, chosen: Alternative) -> bool:
    pairs = (
        (one.nano_usd_per_hour, chosen.nano_usd_per_hour),
        (one.cost_nano_usd, chosen.cost_nano_usd),
        (one.duration_s, chosen.duration_s),
    )
    return all(a is None or b is None or a <= b * (1 + CLOSE) for a, b in pairs)
