"""Offers that are as good as the chosen one, so that a single launch can request all of them.

A refused launch costs seconds, and the next offer of the plan would mostly be the same machine in another zone, or a
larger one with the same GPUs. Alternatives are given only to jobs that are not running or must leave their machine. A
voluntary move is not urgent, and its gate has judged a single target. Offers that the job must not use (in back-off,
just lost, excluded) are not among them, because its plan rejects them.
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
"""How much more the other offer may cost, per hour and until the job is finished, and how much later it may finish; a
share. This is our own estimate: a refusal costs seconds, and a job of minutes pays about as much for them."""
MOST = 24
"""The most offers that are examined. No cloud accepts this many in one launch."""


def alike(market: Market, order: Sequence[int], chosen: int) -> list[int]:
    """The rows of `order`, at most MOST, that have everything the chosen row has and the same capacity type.

    They are the same machine type in another zone of the region, or in the region another type with the same GPUs and
    at least as much of everything else.
    """
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
    """Whether an offer costs and takes about as much as the chosen one. Figures that are not known are not compared."""
    pairs = (
        (one.nano_usd_per_hour, chosen.nano_usd_per_hour),
        (one.cost_nano_usd, chosen.cost_nano_usd),
        (one.duration_s, chosen.duration_s),
    )
    return all(a is None or b is None or a <= b * (1 + CLOSE) for a, b in pairs)


def within_quotas(
    placements: Iterable[Placement], demands: Mapping[str, Demand], under_way: Collection[str], market: Market
) -> Iterator[Placement]:
    """The placements, keeping only the offers in `also` for which the quotas have room in addition to all other jobs'
    machines.

    Jobs in `under_way` are left as they are, because the market already counts their machines.
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
            yield placement  # quotas were checked when the move began
            continue
        also = tuple(_with_room(placement, demands[placement.job_id].nodes, market, free))
        yield placement if also == placement.also else replace(placement, also=also)


def _with_room(placement: Placement, nodes: int, market: Market, free: Counter[QuotaName]) -> Iterator[str]:
    """The offers in `also` of a placement that have room. Takes the units that the largest of them needs from
    `free`."""
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
    """Whether a shape is the chosen one, or has the same GPUs and at least as much of everything else. Shapes without
    GPUs are not compared, because the speed of another type is unknown."""
    if other.instance_type == chosen.instance_type:
        return other.provider == chosen.provider
    same_gpus = chosen.gpu is not None and (other.gpu, other.gpu_count) == (chosen.gpu, chosen.gpu_count)
    return same_gpus and other.vcpu >= chosen.vcpu and other.memory_bytes >= chosen.memory_bytes


def _elsewhere(market: Market, row: int, chosen: int) -> bool:
    """Whether a row is in another zone than the chosen one. Rows of other machine types may be in any zone."""
    listing = market.listing
    if listing.shape[row] != listing.shape[chosen]:
        return True
    zone, there = (listing.sites[listing.site[each]].zone for each in (chosen, row))
    return bool(zone) and bool(there) and zone != there
