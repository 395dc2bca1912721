"""What enabling a cloud, or more regions of it, would save: the cost of jobs with it, compared with their cost on the
enabled providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.market import Market
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, decide
from orchestrator.policy.ranking.eligible import matches
from orchestrator.services.rentable import CouldEnable, Enabling
from orchestrator.services.views import PlanView
from providers.offer import provider_of, region_of
from providers.registry import provider_names

SIMULATED = "the enabled providers are simulated"


def unknown(here: PlanView) -> str:
    """Why the plan `here`, on the enabled providers, cannot be compared with; "" if it can."""
    placed = [each for each in here.decisions if each.offer_id is not None]
    if not placed:
        return "no enabled provider can run it now"
    if here.simulated:
        return SIMULATED
    return "" if any(each.cost_nano_usd is not None for each in placed) else "the speed is not known"


def enabling(
    here: PlanView,
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    limits: MoveLimits,
    *,
    enabled: bool = False,
) -> Iterator[Enabling]:
    """The saving for each cloud of `market` that has an installed provider; with `enabled`, these are further regions
    of enabled clouds. Only jobs count that the enabled providers can run (`here`) at a known cost."""
    cost = {each.job_id: each.cost_nano_usd for each in here.decisions if each.offer_id is not None}
    compared = [demand for demand in demands if cost.get(demand.job.id) is not None]
    total = sum(cost[demand.job.id] or 0 for demand in compared)
    for cloud in sorted(set(market.listing.providers) & set(provider_names())):
        there = [_only(demand, cloud) for demand in compared if _allows(demand, cloud)]
        saving, ages, regions = 0, [], set()
        for placement in decide(there, market, perf, {}, limits=limits).placements:
            before, now = cost[placement.job_id], placement.cost_nano_usd
            if placement.offer_id is not None and before is not None and now is not None and now < before:
                saving += before - now
                regions.add(region_of(placement.offer_id))
                ages += [each.price_age_s for each in placement.alternatives if each.offer_id == placement.offer_id]
        yield Enabling(cloud, saving, total, max(ages, default=None), tuple(sorted(regions)), enabled)


def could_enable(demands: Sequence[Demand], market: Market, perf: PerfBook, limits: MoveLimits) -> CouldEnable | None:
    """Where these jobs would run on the clouds of `market` that have an installed provider; None if one of them cannot
    run."""
    clouds = set(market.listing.providers) & set(provider_names())
    there = [_only(demand, *(each for each in sorted(clouds) if _allows(demand, each))) for demand in demands]
    if not all(demand.job.spec.where.clouds for demand in there):
        return None
    placements = decide(there, market, perf, {}, limits=limits).placements
    chosen = [each.offer_id for each in placements if each.offer_id is not None]
    if len(chosen) < len(demands):
        return None
    costs = [each.cost_nano_usd for each in placements if each.cost_nano_usd is not None]
    ages = [a.price_age_s for each in placements for a in each.alternatives if a.offer_id == each.offer_id]
    return CouldEnable(
        tuple(sorted(set(map(provider_of, chosen)))),
        tuple(sorted(set(map(region_of, chosen)))),
        sum(costs) if len(costs) == len(demands) else None,
        max(ages, default=None),
    )


def _only(demand: Demand, *clouds: str) -> Demand:
    spec = demand.job.spec
    return replace(demand, job=replace(demand.job, spec=replace(spec, where=replace(spec.where, clouds=clouds))))


def _allows(demand: Demand, cloud: str) -> bool:
    clouds = demand.job.spec.where.clouds
    return not clouds or matches(cloud, clouds)
