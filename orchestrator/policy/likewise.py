"""Likewise: the other offers that would do as well as the chosen one, so that one launch can ask for all of them.

A refused launch costs seconds, and the next offer of the plan would mostly be the same machine in the zone next door,
or a larger one with the same GPUs. Only jobs that run nowhere, or must leave, take whichever has room: for a voluntary
move nothing waits, and its gate has weighed one target. What a job must not use (an offer in back-off, just lost,
excluded) is not feasible in its plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from orchestrator.market import Market, QuotaName, units_taken
from orchestrator.model import Alternative, Placement
from orchestrator.policy.demand import Demand
from orchestrator.policy.sharing import claimed

CLOSE = 0.05
"""How much more the other offer may cost: per hour, and until the job is finished. It is also how much later it may
finish. An estimate of ours: a refusal costs seconds, and a job of minutes pays about as much for them."""


def with_likewise(
    placements: Iterable[Placement], demands: Mapping[str, Demand], under_way: Collection[str], market: Market
) -> Iterator[Placement]:
    """The placements with `also`: in the order of the plan, offers of the same region, bought in the same way, at about
    the same cost. Each is the same type in another zone; or another type with the same GPUs and no less of anything
    else, as far as the quotas have room for it beside the machines of all other placements. None for a voluntary move,
    nor where the job may miss its limits, so that a little more makes a difference.

    The market counts the machines of the jobs in `under_way` already.
    """
    placements = list(placements)
    free = Counter({room.name: room.units for of_row in market.rooms.values() for room in of_row})
    for placement in placements:
        if placement.job_id not in under_way:
            free.subtract(claimed(placement, demands[placement.job_id], market))
    for placement in placements:
        also = () if placement.job_id in under_way else _also(placement, demands[placement.job_id].nodes, market, free)
        yield replace(placement, also=also) if also else placement


def _also(placement: Placement, nodes: int, market: Market, free: Counter[QuotaName]) -> tuple[str, ...]:
    """The offers for one placement. Takes the units that the largest of them needs from those that are `free`."""
    if placement.action != "place" or placement.offer_id is None or placement.chance is not None:
        return ()
    chosen = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), None)
    here = market.row(placement.offer_id)
    if chosen is None or not chosen.feasible or here is None:
        return ()
    most = units_taken(market.rooms, [(here, nodes)])
    found: list[str] = []
    for each in placement.alternatives:
        row = market.row(each.offer_id)
        if each is chosen or not each.feasible or row is None or not _close(each, chosen):
            continue
        if _as_good(market, row, here) and (more := _more(market, row, nodes, most, free)) is not None:
            free.subtract(more)
            most += more
            found.append(each.offer_id)
    return tuple(found)


def _more(
    market: Market, row: int, nodes: int, most: Counter[QuotaName], free: Counter[QuotaName]
) -> Counter[QuotaName] | None:
    """The units that machines of a row need beyond `most`; None if they are not free."""
    more = units_taken(market.rooms, [(row, nodes)]) - most
    return more if all(units <= free[name] for name, units in more.items()) else None


def _as_good(market: Market, row: int, chosen: int) -> bool:
    """Whether a row is the chosen type in another zone, or another type that has all that the chosen one has."""
    listing = market.listing
    site, there = listing.sites[listing.site[chosen]], listing.sites[listing.site[row]]
    if (site.provider, site.region) != (there.provider, there.region) or listing.spot[row] != listing.spot[chosen]:
        return False
    this, other = listing.shapes[listing.shape[chosen]], listing.shapes[listing.shape[row]]
    if this.instance_type == other.instance_type:
        return bool(site.zone) and bool(there.zone) and site.zone != there.zone
    same_gpus = this.gpu is not None and (this.gpu, this.gpu_count) == (other.gpu, other.gpu_count)
    return same_gpus and other.vcpu >= this.vcpu and other.memory_bytes >= this.memory_bytes


def _close(one: Alternative, chosen: Alternative) -> bool:
    pairs = (
        (one.nano_usd_per_hour, chosen.nano_usd_per_hour),
        (one.cost_nano_usd, chosen.cost_nano_usd),
        (one.duration_s, chosen.duration_s),
    )
    return all(a is None or b is None or a <= b * (1 + CLOSE) for a, b in pairs)
