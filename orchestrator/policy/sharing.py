"""Sharing: ensures that jobs which are decided together do not count on the same machines of a quota.

Each job is first decided as if it were alone. That is right as long as every quota has room for all of them. If a quota
does not, the jobs that chose its machines are ordered by priority, and then by what each would lose without its choice:

1. those that would have to wait, then those that would be less likely to meet deadline or budget, then the others;
2. then by how much worse the next best choice is for the job's objective, for each unit of the quota;
3. then by deadline, by time of submission and by id.

In this order, as many as there is room for keep their choice. The others are decided again, one after the other, with
what all other jobs leave. The market already counts the machines that a job has asked for (market.quotas).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from orchestrator.market import Market, QuotaName, rooms_without, units_taken
from orchestrator.model import Placement
from orchestrator.policy.demand import Demand

Again = Callable[[Demand, Market], Placement]
"""Decides one job on another market."""
_DAY_H = 24


def shared(
    placements: Mapping[str, Placement],
    demands: Mapping[str, Demand],
    under_way: Collection[str],
    market: Market,
    again: Again,
) -> Mapping[str, Placement]:
    """The placements, by job, adjusted so that together they fit the quotas. `under_way` are the jobs whose moves have
    begun: the market counts their machines already."""
    units = {room.name: room.units for of_row in market.rooms.values() for room in of_row}
    if not units:
        return placements
    claims = {
        job_id: claimed(placement, demands[job_id], market)
        for job_id, placement in placements.items()
        if job_id not in under_way
    }
    settled = dict(placements)
    while (short := _short(claims, units)) is not None:
        among = sorted(job_id for job_id, claim in claims.items() if claim[short])
        # What each of them could do instead, with this quota used up and the other jobs' machines taken.
        others = _sum(claim for job_id, claim in claims.items() if not claim[short])
        without = market.with_fields(rooms=rooms_without(market.rooms, others | Counter({short: units[short]})))
        instead = {job_id: again(demands[job_id], without) for job_id in among}
        among.sort(key=lambda job_id: _rank(demands[job_id], settled[job_id], instead[job_id], claims[job_id][short]))
        left, losing = units[short], list[str]()
        for job_id in among:
            if claims[job_id][short] <= left:
                left -= claims[job_id][short]
            else:
                losing.append(job_id)
                claims[job_id] = Counter()
        taken = _sum(claims.values())
        remaining = market.with_fields(rooms=rooms_without(market.rooms, taken))
        for job_id in losing:
            settled[job_id] = again(demands[job_id], remaining)
            if claim := claimed(settled[job_id], demands[job_id], market):
                claims[job_id] = claim
                taken += claim
                remaining = market.with_fields(rooms=rooms_without(market.rooms, taken))
    return settled


def claimed(placement: Placement, demand: Demand, market: Market) -> Counter[QuotaName]:
    """The units of each quota that a placement takes; none unless it places or moves the job."""
    if placement.action not in ("place", "move") or placement.offer_id is None:
        return Counter()
    row = market.row(placement.offer_id)
    return Counter() if row is None else units_taken(market.rooms, [(row, demand.nodes)])


def _short(claims: Mapping[str, Counter[QuotaName]], units: Mapping[QuotaName, int]) -> QuotaName | None:
    """The first quota that is exceeded; None if none is."""
    wanted = _sum(claims.values())
    short = [name for name, sum_ in wanted.items() if sum_ > units[name]]
    return min(short, key=repr, default=None)


def _rank(demand: Demand, now: Placement, instead: Placement, units: int) -> tuple[int, int, float, float, int, str]:
    """The sort key of a job that competes for a quota; smaller comes first. A higher priority comes first, then a job
    that loses more without its choice."""
    job = demand.job
    waits = instead.action in ("wait", "none")
    riskier = instead.chance is not None and (now.chance is None or instead.chance < now.chance)
    deadline = math.inf if job.deadline_at_ms is None else job.deadline_at_ms
    loss = 0.0 if waits else _loss(demand, now, instead) / units
    return -demand.priority, (0 if waits else 1 if riskier else 2), -loss, deadline, job.submitted_at_ms, job.id


def _loss(demand: Demand, now: Placement, instead: Placement) -> float:
    """How much worse another placement is, in nano-USD.

    This is the additional cost, plus the delay times the hourly price that the job pays, both weighted as in its
    objective. If the job's cost is unknown, it is the additional price for a day.
    """
    objective = demand.job.spec.objective
    if now.cost_nano_usd is None or instead.cost_nano_usd is None:
        return float((_price(instead) - _price(now)) * _DAY_H)
    loss = objective.cost_weight * (instead.cost_nano_usd - now.cost_nano_usd)
    if now.finish_at_ms is not None and instead.finish_at_ms is not None:
        later_h = (instead.finish_at_ms - now.finish_at_ms) / 3.6e6
        loss += objective.time_weight * later_h * _price(now)
    return float(loss)


def _price(placement: Placement) -> int:
    """nano-USD per hour of the offer that a placement chose."""
    chosen = (each for each in placement.alternatives if each.offer_id == placement.offer_id)
    found = next(chosen, None)
    return 0 if found is None or found.nano_usd_per_hour is None else found.nano_usd_per_hour


def _sum(claims: Iterable[Counter[QuotaName]]) -> Counter[QuotaName]:
    total: Counter[QuotaName] = Counter()
    for claim in claims:
        total.update(claim)
    return total
