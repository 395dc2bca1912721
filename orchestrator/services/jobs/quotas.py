"""The value of slightly larger quotas for the jobs of a plan: which jobs could start, and what others would save. Found
by deciding again with one larger quota at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.market import Market, QuotaName, rooms_raised
from orchestrator.model import Placement, Plan
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, Running, decide
from orchestrator.policy.sharing import claimed
from orchestrator.services.rentable import QuotaWorth

MOST_TRIED = 8
"""The most quotas to try; each needs a new decision about all jobs."""


def worth_of_quotas(
    plan: Plan,
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    limits: MoveLimits,
) -> tuple[QuotaWorth, ...]:
    """The value of each quota that prevents a better plan, most valuable first."""
    jobs = {each.job.id: each for each in demands}
    planned = Counter[QuotaName]()
    for placement in plan.placements:
        planned += claimed(placement, jobs[placement.job_id], market)
    machines, found = max((each.nodes for each in demands), default=1), []
    for name, wanted in sorted(_scarce(market, planned, machines).items(), key=repr)[:MOST_TRIED]:
        raised = market.with_fields(rooms=rooms_raised(market.rooms, name, wanted))
        then = decide(demands, raised, perf, running, limits=limits)
        saved, starts = _better(plan.placements, then.placements)
        if saved > 0 or starts:
            (cloud, quota), taken = name, planned[name] + _on_the_way(market, name)
            assert quota.covers is not None
            of_quota = (cloud, quota.name, quota.scope, quota.covers.unit, quota.limit, quota.used, taken)
            names = tuple(jobs[each].job.name for each in starts)
            found.append(QuotaWorth(*of_quota, wanted, max(saved, 0), names, quota.owned))
    return tuple(sorted(found, key=lambda each: (-len(each.starts), -each.saving_nano_usd, each.cloud, each.name)))


def _scarce(market: Market, planned: Mapping[QuotaName, int], machines: int) -> dict[QuotaName, int]:
    """By scarce quota, the units that the machines of the largest job would use. A quota is scarce if it has fewer
    units left after the plan."""
    units: dict[QuotaName, int] = {}
    left: dict[QuotaName, int] = {}
    for of_row in market.rooms.values():
        for room in of_row:
            units[room.name] = max(units.get(room.name, 0), room.each * machines)
            left[room.name] = room.units - planned.get(room.name, 0)
    return {name: wanted for name, wanted in units.items() if left[name] < wanted}


def _on_the_way(market: Market, name: QuotaName) -> int:
    return next(room.taken for of_row in market.rooms.values() for room in of_row if room.name == name)


def _better(now: Sequence[Placement], then: Sequence[Placement]) -> tuple[int, tuple[str, ...]]:
    """(nano-USD saved by the jobs that run in both cases, the jobs that would only then start)."""
    later = {each.job_id: each for each in then}
    saved, starts = 0, list[str]()
    for before in now:
        after = later[before.job_id]
        if before.offer_id is None and after.offer_id is not None:
            starts.append(before.job_id)
        elif before.cost_nano_usd is not None and after.cost_nano_usd is not None:
            saved += before.cost_nano_usd - after.cost_nano_usd
    return saved, tuple(starts)
