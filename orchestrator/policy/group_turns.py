"""Group turns: which jobs of a group have the machines that quotas limit, according to the group's joint plan. Pure.

The joint plan (groups.planning) gives each job a share of the time on each way; a way is a kind of machine under the
same quotas. Rounds (groups.time_slices) turn the shares into machines. Where the machines of other jobs leave no room
for a job, those offers are reserved for the others. Under `cheapest`, a job decides freely among all other offers, so
where no quota binds, each job is decided alone. Under the other policies it uses only the way that it was given, unless
it has a deadline: then its own forecast of risks and delays may need other ways.

Moving has a cost, so a running job is planned as if it were faster on its present machine: by the gain that a move
requires and by the time that it takes. Under a fairness policy, jobs take turns, at most once a round. Under the
others, a job keeps its machine for as long as the plan uses it there, and gives way only to a job that would otherwise
be late; it moves to the way that the plan has for it as soon as there is room. Under `cheapest`, of the jobs that wait
for the same machines the shortest is next; the order makes no difference to the cost. Under `makespan`, a job counts
for more, the longer the jobs that wait for it will take. Under every policy, jobs hurry for later jobs with deadlines,
if all can meet their deadlines that way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.market import Market, rooms_without, units_taken
from orchestrator.model import GroupPolicy
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.groups.following import in_time_for_what_follows, knowing_what_follows
from orchestrator.policy.groups.order import NO_ORDER, Order
from orchestrator.policy.groups.planning import (
    FAIR,
    LEAST_SHARE,
    Asked,
    Joint,
    asked,
    joint,
    less_late,
)
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.rounds import Bools, Room
from orchestrator.policy.groups.time_limit import TimeLimit
from orchestrator.policy.groups.time_slices import HARDLY, Contender, in_whole_machines, turns
from orchestrator.policy.groups.urgency import URGENT, urgent
from orchestrator.policy.time_sharing import Given, History, contender, least_turn_s


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The rules of a group: its `policy`, and how turns are assigned. A round lasts `round_s`. A turn may end once it
    has lasted `least_s`. Turns are assigned again after `again_s` at the latest. `limits` apply to moves, and `limit_s`
    is how long the solver may take."""

    policy: GroupPolicy
    round_s: float
    least_s: float
    again_s: float
    limits: MoveLimits
    limit_s: float


LAST = 1e-6
"""The precedence of a job that would have to give way before it has finished."""
Parts = Mapping[str, Mapping[str, float]]
"""The part of its time that a job is planned to spend on each offer, by job id and offer id."""
NO_PARTS: Parts = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Later:
    """The jobs of a group that must wait until others have finished: their demands, and the group's order."""

    demands: Sequence[Demand]
    after: Order


NOTHING_LATER = Later((), NO_ORDER)


@dataclass(frozen=True, slots=True)
class GroupTurns:
    """The turns of a group: `given`, None if each job may go wherever it wants; the planned `parts` that they follow
    from; and `late`, whether these parts come from an earlier plan because the solver took too long."""

    given: Given | None = None
    parts: Parts = field(default_factory=dict)
    late: bool = False


def group_turns(
    demands: Sequence[Demand],
    history: Mapping[str, History],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    held: Sequence[tuple[str, int]],
    rules: GroupRules,
    last: Parts = NO_PARTS,
    later: Later = NOTHING_LATER,
) -> GroupTurns:
    """The turns of the jobs of a group.

    `history` is by job id. `held` are the machines that the group has, as pairs of (offer id, how many). `last` are the
    parts of the group's last plan, which are used if the solver takes too long. `later` are the jobs that cannot start
    yet.

    Jobs without known steps or speed, and jobs that no offer fits, are left out. If not all jobs can be on time, the
    plan makes the least work late.
    """
    demands, waiting = _by_id(demands), _by_id(later.demands)
    taken = units_taken(market.rooms, [(row, count) for offer, count in held if (row := market.row(offer)) is not None])
    rooms = rooms_without(market.rooms, Counter({name: -units for name, units in taken.items()}))
    ages_s = {job_id: past.age_s for job_id, past in history.items()}
    there = market.with_fields(rooms=rooms)
    question = asked(demands, there, perf, running, ages_s=ages_s, limits=rules.limits, partly=True)
    fair, cheapest = rules.policy in FAIR, rules.policy == "cheapest"
    others = len(question.demands) > 1
    if not question.demands or (fair and not others) or (cheapest and not (others and question.quotas)):
        return GroupTurns(parts=last)
    until = TimeLimit(rules.limit_s)
    try:
        tried = [question]
        if waiting:
            all_of_them = (*question.demands, *waiting)
            of_all = asked(all_of_them, there, perf, running, ages_s=ages_s, limits=rules.limits, partly=True)
            if rules.policy == "makespan":
                question = knowing_what_follows(question, of_all, later.after, running, until=until)
            tried = [in_time_for_what_follows(question, of_all, later.after), question]
        own_s = question.jobs.deadline_s
        question, parts, overdue = _parts(tried, running, rules, until)
        hurries, late = question.jobs.deadline_s < own_s, False
    except LimitError:
        hurries, overdue = (np.zeros(len(question.demands), dtype=bool) for _ in range(2))
        parts, late = last, True
    if not parts:
        return GroupTurns(late=late)
    shares = np.array([[parts.get(each.job.id, {}).get(way, 0.0) for way in question.ids] for each in question.demands])
    room = _room(question)
    contenders = _contenders(question, shares, history, rules, overdue, until)
    may = question.jobs.rate > 0 if late or fair else (shares > 0) | np.array([each.urgent for each in contenders])
    first = _precedence(question, contenders, shares, shortest=cheapest, deadlines=not fair)

    def assigned(among: Sequence[Contender]) -> Mapping[str, int]:
        return turns(among, shares, room, rules.round_s, may, precedence=first, gather=fair)

    way = assigned(contenders)
    if not fair and not cheapest:
        way = assigned(_where_planned(contenders, shares, way, room))
    given = _given(question, contenders, shares, way, room, market, hurries, free=cheapest)
    return GroupTurns(given, parts, late)


def _by_id(demands: Sequence[Demand]) -> list[Demand]:
    """Sorted, so that the input order does not decide between equally good plans."""
    return sorted(demands, key=lambda each: each.job.id)


def _parts(
    tried: Sequence[Asked], running: Mapping[str, Running], rules: GroupRules, until: TimeLimit
) -> tuple[Asked, Parts, Bools]:
    """The first of these questions that has a plan, each job's planned parts of the time, and (jobs,) which jobs are
    late. No parts if the policy has nothing to share out. If no question has a plan, the least work is late. Raises
    LimitError if the solver takes too long."""
    question = tried[-1]
    stays = {
        each.job.id: each.gap_s / rules.round_s + (0.0 if rules.policy in FAIR else rules.limits.min_gain)
        for each in question.demands
    }
    late = np.zeros(len(question.demands), dtype=bool)
    for question in tried:
        try:
            return question, _of_plan(joint(question, rules.policy, running, stays=stays, until=until)), late
        except InfeasibleError:
            continue
    try:
        eased, some = less_late(question, until)
        late[some] = True
        return question, _of_plan(joint(eased, rules.policy, running, stays=stays, until=until)), late
    except InfeasibleError:
        return question, NO_PARTS, late


def _of_plan(plan: Joint) -> Parts:
    return {each.job_id: {part.offer_id: part.share for part in each.parts} for each in plan.jobs}


def _room(question: Asked) -> Room:
    quotas = question.jobs.quotas
    each = np.zeros((len(quotas), len(question.rows)))
    for number, quota in enumerate(quotas):
        each[number, quota.ways] = 1.0 if quota.each is None else quota.each
    return Room(each, np.array([quota.most for quota in quotas]))


def _contenders(
    question: Asked,
    shares: Floats,
    history: Mapping[str, History],
    rules: GroupRules,
    overdue: Bools,
    until: TimeLimit,
) -> tuple[Contender, ...]:
    column = {offer_id: way for way, offer_id in enumerate(question.ids)}
    machine_times = [history[each.job.id] for each in question.demands]
    ways = [None if past.on is None else column.get(past.on) for past in machine_times]
    spare_s = max(each.gap_s for each in question.demands) + rules.again_s
    moves_s = np.array(
        [each.gap_s + past.start_s for each, past in zip(question.demands, machine_times, strict=True)], dtype=float
    )
    first = urgent(question, shares, ways, moves_s, overdue, spare_s, until)
    found = []
    for index, (demand, past, holds) in enumerate(zip(question.demands, machine_times, ways, strict=True)):
        if rules.policy in FAIR:
            keeps = past.turn_s < max(rules.least_s, least_turn_s(demand, past))
        else:
            keeps = holds is not None and bool(shares[index, holds] > LEAST_SHARE or past.turn_s < rules.least_s)
        rate = question.jobs.rate[index]
        found.append(contender(demand, past, rate, column, keeps=keeps, urgent=first[index]))
    return tuple(found)


def _precedence(
    question: Asked, contenders: Sequence[Contender], shares: Floats, *, shortest: bool, deadlines: bool
) -> Floats:
    """(jobs,): a factor for the priority of each job. `shortest`: the shortest job is first. `deadlines`: a job without
    a deadline is last if it takes longer than one with a deadline can wait, so that it need not give way soon."""
    takes_s, due_s = _fastest_s(question), question.jobs.deadline_s
    found: Floats = 1 / (shares.sum(axis=1) * takes_s + HARDLY) if shortest else np.ones(len(contenders))
    waits = np.array([each.holds is None for each in contenders])
    waits_at_most_s = float((URGENT * due_s - takes_s)[waits & np.isfinite(due_s)].min(initial=np.inf))
    if deadlines:
        found[np.isinf(due_s) & (takes_s > waits_at_most_s)] *= LAST
    return found


def _where_planned(
    contenders: Sequence[Contender], shares: Floats, way: Mapping[str, int], room: Room
) -> tuple[Contender, ...]:
    """The contenders. A job that keeps a machine for which the plan has no use moves to one that the plan uses, if
    there is room; otherwise a machine would be idle until its turn ends. Urgent jobs stay."""
    left = room.most - sum(room.each[:, way[each.job_id]] * each.takes for each in contenders if each.job_id in way)
    found = list(contenders)
    for index, each in enumerate(contenders):
        holds, urgent_there = each.holds, each.urgent is not None and each.urgent.any()
        if holds is None or urgent_there or way.get(each.job_id) != holds or shares[index, holds] > LEAST_SHARE:
            continue
        there = left + room.each[:, holds] * each.takes
        for other in np.argsort(-shares[index], kind="stable").tolist():
            after = there - room.each[:, other] * each.takes
            if shares[index, other] > LEAST_SHARE and (after[room.each[:, other] > 0] >= 0).all():
                found[index], left = replace(each, holds=other, keeps=True), after
                break
    return tuple(found)


def _fastest_s(question: Asked) -> Floats:
    """(jobs,): seconds that each job takes on its fastest way."""
    found: Floats = question.jobs.steps / question.jobs.rate.max(axis=1)
    return found


def _given(
    question: Asked,
    contenders: Sequence[Contender],
    shares: Floats,
    way: Mapping[str, int],
    room: Room,
    market: Market,
    hurries: Bools,
    *,
    free: bool,
) -> Given | None:
    """The turns, given the way of each job that has one; None if no job is kept from any offer. `free`: a job may use
    every way with room for it, not only the one it was given; except one that `hurries` (jobs,) for others, since by
    itself it does not know their deadlines."""
    full = _full(contenders, way, room)
    places = _places(question, market)
    not_now: dict[str, frozenset[str]] = {}
    give_way = []
    known: dict[bytes, frozenset[str]] = {}
    for index, each in enumerate(contenders):
        has = way.get(each.job_id)
        chooses = has is not None and not hurries[index] and (free or np.isfinite(question.jobs.deadline_s[index]))
        closed = full[index] if chooses else np.ones(len(question.ids), dtype=bool)
        if has is not None:
            closed[has] = False
        if closed.any():
            key = closed.tobytes()
            if key not in known:
                open_to_it = frozenset[str]().union(*(places[at] for at in np.flatnonzero(~closed)))
                known[key] = frozenset[str]().union(*(places[at] for at in np.flatnonzero(closed))) - open_to_it
            not_now[each.job_id] = known[key]
        if each.holds is not None and closed[each.holds]:
            give_way.append(each.job_id)
    if not any(not_now.values()):
        return None
    parts = in_whole_machines(shares, np.array([float(each.takes) for each in contenders]), room)
    share = dict(zip((each.job_id for each in contenders), parts.tolist(), strict=True))
    return Given(tuple(sorted(way)), not_now, tuple(give_way), share, len(way))


def _full(contenders: Sequence[Contender], way: Mapping[str, int], room: Room) -> Bools:
    """(jobs, ways): whether the machines of the other jobs leave no room for a job."""
    left = room.most.astype(float)
    for each in contenders:
        if each.job_id in way:
            left -= room.each[:, way[each.job_id]] * each.takes
    found = np.zeros((len(contenders), room.each.shape[1]), dtype=bool)
    for index, each in enumerate(contenders):
        there = left.copy()
        if each.job_id in way:
            there += room.each[:, way[each.job_id]] * each.takes
        found[index] = ((there[:, None] < room.each * each.takes) & (room.each > 0)).any(axis=0)
    return found


def _places(question: Asked, market: Market) -> list[frozenset[str]]:
    """For each way, the ids of all offers with its kind of hardware and under the same quotas."""

    def key(row: int) -> tuple[object, ...]:
        return int(market.listing.kind[row]), tuple(each.name for each in market.rooms.get(row, ()))

    found: dict[tuple[object, ...], set[str]] = defaultdict(set)
    keys = [key(row) for row in question.rows]
    wanted = set(keys)
    for row in range(len(market)):
        if (its := key(row)) in wanted:
            found[its].add(market.ids[row])
    return [frozenset(found[each]) for each in keys]
