"""Quota value: the value to a group of one more machine under a quota, found by planning with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isinf

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.market import Market, QuotaName, rooms_raised
from orchestrator.model import GroupPolicy
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.groups.course import Course, by_course, course
from orchestrator.policy.groups.order import NO_ORDER, Order
from orchestrator.policy.groups.planning import NOWHERE, Joint, asked, joint
from orchestrator.policy.groups.time_limit import TimeLimit

SEARCH_S = 5.0
"""How long solving may take for all quotas together, in seconds."""
MOST_TRIED = 6
"""The most quotas that are tried, those with the cheapest machines first."""
HARDLY = 1e-6
"""A smaller improvement, relatively, counts as none."""


@dataclass(frozen=True, slots=True)
class QuotaValue:
    """What `more` units of a quota would change. This is one machine, or as many as the smallest job takes.

    All jobs together would cost `saving_usd` less, the last one would end `sooner_s` earlier, and the objective would
    be better by `value`, in its own unit (0 if some jobs come after others or have to take turns, or under makespan if
    some have deadlines, because it is not known then).
    """

    quota: QuotaName
    more: int
    saving_usd: float
    sooner_s: float
    value: float


def quota_values(
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    policy: GroupPolicy,
    plan: Joint,
    unfolded: Course,
    running: Mapping[str, Running] = NOWHERE,
    after: Order = NO_ORDER,
    *,
    limits: MoveLimits | None = None,
    until: TimeLimit | None = None,
) -> tuple[QuotaValue, ...]:
    """What the quotas that are used up are worth, compared with the `plan` of these jobs and its course `unfolded`; the
    best first."""
    until = TimeLimit(SEARCH_S) if until is None else until
    found = []
    for name, more in _used_up(demands, market, plan)[:MOST_TRIED]:
        raised = market.with_fields(rooms=rooms_raised(market.rooms, name, more))
        try:
            question = asked(demands, raised, perf, running, limits=limits)
            with_it = joint(question, policy, running, after=after, until=until)
            then = course(question, policy, with_it, running, after, until=until)
            # The objective assumes that all jobs can start now and that shares stay: else only the course says what
            # changes.
            stay = policy == "cheapest" or (isinf(plan.holds_s) and isinf(with_it.holds_s))
            known = stay and not any(after.values()) and not by_course(question, policy, after)
            value = (with_it.value - plan.value) * (1.0 if plan.most else -1.0) if known else 0.0
            better = value if value > HARDLY * abs(plan.value) else 0.0
            found.append(_worth(name, more, better, unfolded, then))
        except (InfeasibleError, LimitError):
            continue  # the plan was possible before, so the solver ran out of time
    useful = [each for each in found if each is not None]
    return tuple(sorted(useful, key=lambda each: (-each.saving_usd, -each.value, -each.sooner_s, repr(each.quota))))


def _worth(name: QuotaName, more: int, value: float, now: Course, then: Course) -> QuotaValue | None:
    """The worth of a quota; None if more of it has no value."""
    ends = isfinite(now.ends_s) and isfinite(then.ends_s)
    sooner_s = now.ends_s - then.ends_s if ends else 0.0
    saving_usd = now.cost_usd - then.cost_usd
    if value == 0 and sooner_s <= HARDLY * now.ends_s and saving_usd <= HARDLY * now.cost_usd:
        return None
    return QuotaValue(name, more, saving_usd, sooner_s, value)


def _used_up(demands: Iterable[Demand], market: Market, plan: Joint) -> list[tuple[QuotaName, int]]:
    """(quota, units of another machine) for each quota that has no room for one, those with the cheapest machines
    first."""
    nodes = {each.job.id: each.nodes for each in demands}
    used: dict[QuotaName, float] = {}
    for job in plan.jobs:
        for part in job.parts:
            row = market.row(part.offer_id)
            for room in market.rooms.get(row, ()) if row is not None else ():
                used[room.name] = used.get(room.name, 0.0) + part.share * nodes[job.job_id] * room.each
    fewest = min(nodes.values(), default=1)
    found: dict[QuotaName, tuple[int, int]] = {}
    for row, rooms in market.rooms.items():
        price = int(market.price[row]) if market.priced[row] else None
        for room in rooms:
            more = room.each * fewest
            if price is not None and room.units - used.get(room.name, 0.0) < more:
                found[room.name] = min(found.get(room.name, (price, more)), (price, more))
    return [(name, more) for name, (_, more) in sorted(found.items(), key=lambda each: (each[1], repr(each[0])))]
