"""Likewise: the other offers that would do as well as the chosen one, so that one launch can ask for all of them.

A refused launch costs seconds, and the next offer of the plan would mostly be the same machine in the zone next door,
or a larger one with the same GPUs. Only jobs that run nowhere, or must leave, take whichever has room: for a voluntary
move nothing waits, and its gate has weighed one target. What a job must not use (an offer in back-off, just lost,
excluded) is not feasible in its plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.market import Market, QuotaName, units_taken
from orchestrator.market.listing import Ints, Shape
from orchestrator.model import Alternative, Placement
from orchestrator.policy.demand import Demand
from orchestrator.policy.sharing import claimed

CLOSE = 0.05
"""How much more the other offer may cost: per hour, and until the job is finished. It is also how much later it may
finish. An estimate of ours: a refusal costs seconds, and a job of minutes pays about as much for them."""
MOST = 24
"""Of the offers that are looked at. No cloud's launch may name as many."""


def alike(market: Market, order: Sequence[int], chosen: int) -> list[int]:
    """The rows of `order` that have all that the chosen one has, at most MOST: the same type in another zone of its
    region, or another type with the same GPUs and no less of anything else, bought in the same way."""
    listing = market.listing
    site, shape = listing.sites[listing.site[chosen]], listing.shapes[listing.shape[chosen]]
    rows = np.asarray(order, dtype=np.int64)
    rows = rows[
        (market.price[rows] <= market.price[chosen] * (1 + CLOSE)) & (listing.spot[rows] == listing.spot[chosen])
    ]
    near = [each for each in _distinct(listing.site[rows]) if listing.sites[each][:2] == site[:2]]
    good = [each for each in _distinct(listing.shape[rows]) if _no_less(listing.shapes[each], shape)]
    rows = rows[np.isin(listing.site[rows], near) & np.isin(listing.shape[rows], good)]
    return [row for row in rows.tolist() if row != chosen and _elsewhere(market, row, chosen)][:MOST]


def _distinct(codes: Ints) -> list[int]:
    found: list[int] = np.unique(codes).tolist()
    return found


def close(one: Alternative, chosen: Alternative) -> bool:
    """Whether an offer is about as cheap and early as the chosen one, as far as that is known."""
    pairs = (
        (one.nano_usd_per_hour, chosen.nano_usd_per_hour),
        (one.cost_nano_usd, chosen.cost_nano_usd),
        (one.duration_s, chosen.duration_s),
    )
    return all(a is None or b is None or a <= b * (1 + CLOSE) for a, b in pairs)


def within_quotas(
    placements: Iterable[Placement], demands: Mapping[str, Demand], under_way: Collection[str], market: Market
) -> Iterator[Placement]:
    """The placements with those offers of `also` for which the quotas have room beside the machines of all others.

    The market counts the machines of the jobs in `under_way` already.
    """
    placements = list(placements)
    if not market.rooms or not any(each.also for each in placements):
        yield from placements
        return
    free = Counter({room.name: room.units for of_row in market.rooms.values() for room in of_row})
    for placement in placements:
        if placement.job_id not in under_way:
            free.subtract(claimed(placement, demands[placement.job_id], market))
    for placement in placements:
        if placement.job_id in under_way:
            yield placement  # theirs were found room for before
            continue
        also = tuple(_with_room(placement, demands[placement.job_id].nodes, market, free))
        yield placement if also == placement.also else replace(placement, also=also)


def _with_room(placement: Placement, nodes: int, market: Market, free: Counter[QuotaName]) -> Iterator[str]:
    """The offers for one placement. Takes the units that the largest of them needs from those that are `free`."""
    here = None if placement.offer_id is None else market.row(placement.offer_id)
    most = Counter[QuotaName]() if here is None else units_taken(market.rooms, [(here, nodes)])
    for offer_id in placement.also:
        row = market.row(offer_id)
        more = units_taken(market.rooms, [] if row is None else [(row, nodes)]) - most
        if all(units <= free[name] for name, units in more.items()):
            free.subtract(more)
            most += more
            yield offer_id


def _no_less(other: Shape, chosen: Shape) -> bool:
    """Whether a shape is the chosen one, or has the same GPUs and no less of anything else. Without GPUs, nothing says
    how fast another type is."""
    if other.instance_type == chosen.instance_type:
        return other.provider == chosen.provider
    same_gpus = chosen.gpu is not None and (other.gpu, other.gpu_count) == (chosen.gpu, chosen.gpu_count)
    return same_gpus and other.vcpu >= chosen.vcpu and other.memory_bytes >= chosen.memory_bytes


def _elsewhere(market: Market, row: int, chosen: int) -> bool:
    """Whether a row of the chosen type is in another zone; those of other types may be in any."""
    listing = market.listing
    if listing.shape[row] != listing.shape[chosen]:
        return True
    zone, there = (listing.sites[listing.site[each]].zone for each in (chosen, row))
    return bool(zone) and bool(there) and zone != there
