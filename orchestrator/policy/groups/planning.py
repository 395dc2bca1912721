"""Planning a group: makes a Collection of market, demands and group, solves it, and reads the solution back as a plan
of each job.

A *way* is an offer. Of the offers with the same kind of hardware under the same quotas, each job needs only the
cheapest one, and the one where it runs. Rates are middle estimates, and prices are the present ones. Everything here is
an estimate of a fluid plan, in which time is shared without the cost of moving. A job that is not running pays for one
start, spread over its ways in proportion to its steps (Collection.usd_per_h_started). Only `cheapest` includes starts
in the cost that it minimizes; rates and quotas do not include them.

Ties are broken in this order: stay, then the cheapest way, then the offer's id (`STAY`, `BY_ORDER`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from orchestrator.config.raising import raising
from orchestrator.errors import InfeasibleError
from orchestrator.market import Market, QuotaName, Room, why_over_quota
from orchestrator.model import GroupPolicy
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import usable
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.explanation.explain import why_over_limits
from orchestrator.policy.groups.collection import Collection, Quota, Supply, collection
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.in_turns import NOTHING, Turns
from orchestrator.policy.groups.lateness import conflict, lateness, require_fast_enough
from orchestrator.policy.groups.order import NO_ORDER, Order, before_each
from orchestrator.policy.groups.policies.cost import of_time, on_time
from orchestrator.policy.groups.policies.makespan_in_order import makespan_in_order
from orchestrator.policy.groups.policies.named import PROGRAMS
from orchestrator.policy.groups.problem import Floats, Integers
from orchestrator.policy.groups.program import Allocation
from orchestrator.policy.groups.solving import cheapest, in_time
from orchestrator.policy.groups.time_limit import TimeLimit
from orchestrator.policy.ranking.cost import estimated, evidence_of, forecast_of
from orchestrator.policy.ranking.eligible import NONE, OVER_QUOTA, Filter, Filtered, Filters, RejectionReason
from orchestrator.policy.ranking.limits import SAFE, Bools, affordable, budget_left

STAY, BY_ORDER = 1e-5, 1e-9
"""To break ties: how much faster, relatively, a job is assumed to be on its present way, and how much more each later
way is assumed to cost. Both are far less than the uncertainty of speeds and prices."""
LEAST_SHARE, RESIDUE = 1e-4, 1e-10
"""A share that is a smaller part than LEAST_SHARE of the job's largest share, or smaller than RESIDUE, is a rounding
error of the solver."""
MOST_S = 20.0
"""How long solving may take, in seconds."""
NOWHERE: Mapping[str, Running] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Part:
    """A job spends the part `share` of its time on machines of the offer `offer_id`."""

    offer_id: str
    share: float


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Where a job runs, how long it takes including its start (market seconds), and what both cost, if the shares stay
    as they are. All figures are estimates. If the shares add up to less than 1, the job waits for the rest of the
    time. `begins_s` is the part of the time that its start takes, and `steps_per_s` its speed after that."""

    job_id: str
    parts: tuple[Part, ...]
    steps_per_s: float
    begins_s: float
    duration_s: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint plan: the `value` of the objective (if `most`, larger is better), the `bound` that no plan can beat, and
    their relative `gap`.

    `stopped_after_s`: how many seconds of solving were allowed, if the solver was stopped before it had the best plan;
    None if it ended by itself. `holds_s`: for how long the shares are as in the plan; they change then if jobs take
    turns.
    """

    jobs: tuple[JobPlan, ...]
    value: float
    most: bool
    bound: float
    gap: float
    stopped_after_s: float | None = None
    holds_s: float = np.inf

    @property
    def cost_usd(self) -> float:
        """The cost of all jobs."""
        return sum(each.cost_usd for each in self.jobs)


FAIR = frozenset({"max-min-fairness", "finish-time-fairness"})
"""Policies that compare rates with those of an equal part of all machines, so the number of machines must be
limited."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A collection, and what its rows and columns stand for: `demands`, the jobs; `rows` of the market and their `ids`,
    one for each way; and `quotas`, in the order of the collection's."""

    jobs: Collection
    demands: tuple[Demand, ...]
    rows: tuple[int, ...]
    ids: tuple[str, ...]
    quotas: tuple[QuotaName, ...]
    limited: tuple[bool, ...]
    """For each way, whether a quota covers it."""
    begins_s: Floats
    """(jobs,): the least time (seconds) that a job that is not running takes to start. Deadlines in `jobs` count from
    then."""
    paid: Bools
    """(jobs, ways): whether the job's own budget, if it has one, surely pays for the way, or the job runs there."""


def asked(
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running] = NOWHERE,
    *,
    weights: Mapping[str, float] | None = None,
    ages_s: Mapping[str, float] | None = None,
    limits: MoveLimits | None = None,
    partly: bool = False,
    filters: Filters | None = None,
) -> Asked:
    """The collection of these jobs on this market. `filters`: those of this market and these limits, if there are any
    already.

    `weights` and `ages_s` are by job id. `ages_s` is for how long (market seconds) a job has wanted a machine; by
    default, since it was submitted.

    Raises InfeasibleError, naming the job, if its steps or speed are not known, or if there is no offer that it may
    use. With `partly`, such jobs are left out instead.
    """
    limits = MoveLimits() if limits is None else limits
    filters = Filters(market, limits) if filters is None else filters
    known: dict[Hashable, dict[int, float]] = {}
    rates: list[dict[int, float]] = []
    too_dear: list[frozenset[int]] = []
    planned: list[Demand] = []
    for demand in demands:
        try:
            filtering, where = filters.of(demand.nodes), running.get(demand.job.id)
            of_job = _rates(demand, filtering, market, perf, where, known)
            rates.append(of_job)
            too_dear.append(_too_dear(demand, of_job, filtering, perf, where))
            planned.append(demand)
        except InfeasibleError:
            if not partly:
                raise
    demands = planned
    rows = sorted(
        {row for of_job in rates for row in of_job}, key=lambda row: (int(market.price[row]), market.ids[row])
    )
    column = {row: index for index, row in enumerate(rows)}
    rate, paid = np.zeros((len(demands), len(rows))), np.ones((len(demands), len(rows)), dtype=bool)
    for index, of_job in enumerate(rates):
        for row, value in of_job.items():
            rate[index, column[row]] = value
            paid[index, column[row]] = row not in too_dear[index]
    names, quotas = _quotas(market, rows)
    waits = np.array([each.job.id not in running for each in demands])
    setup_s = np.array([each.setup_s for each in demands])
    start_s = np.where(waits[:, None], market.startup_s[rows] + setup_s[:, None], 0.0)
    begins_s = np.where(rate > 0, start_s, np.inf).min(axis=1, initial=np.inf)
    at, weight_of, age_of = market.at, weights or {}, ages_s or {}
    jobs = collection(
        rate,
        Supply(np.full(len(rows), np.inf), np.array([market.price[row] / 1e9 for row in rows])),
        gpus=np.array([float(each.nodes) for each in demands]),
        steps=np.array([float((each.total_steps or 0) - each.done_steps) for each in demands]),
        weight=np.array([weight_of.get(each.job.id, each.job.weight) for each in demands]),
        age_s=np.array([age_of.get(each.job.id, max(at - each.job.submitted_at_ms, 0) / 1000) for each in demands]),
        deadline_s=np.array([_due_s(each, at) for each in demands]) - begins_s,
        quotas=quotas,
        start_s=start_s,
    )
    limited = tuple(row in market.rooms for row in rows)
    ids = tuple(market.ids[row] for row in rows)
    return Asked(jobs, tuple(demands), tuple(rows), ids, names, limited, begins_s, paid)


def joint(
    question: Asked,
    policy: GroupPolicy,
    running: Mapping[str, Running] = NOWHERE,
    *,
    stays: Mapping[str, float] = MappingProxyType({}),
    after: Order = NO_ORDER,
    until: TimeLimit | None = None,
) -> Joint:
    """The plan of least cost, or that of another policy. Every plan is verified (engine.solve).

    `stays`, by job id: how much faster, relatively, a running job is assumed to be where it is; STAY for the others.
    `after`: the order of the jobs; only `makespan` takes it into account. Then the plan's shares are parts of the time
    until the last job ends, and its value is a bound, which a course that keeps the order need not reach.

    Raises InfeasibleError if deadlines and quotas contradict each other, naming the jobs, or for a fairness policy if
    no quota limits the machines. Raises LimitError if the solver has no verified plan when `until` runs out (default:
    after MOST_S seconds of solving).
    """
    until = TimeLimit(MOST_S) if until is None else until
    tied = _tied(question, running, stays)
    jobs = tied.with_starts(question.begins_s)
    names = [each.job.name for each in question.demands]
    if policy in FAIR:
        require_limits(question)
    require_fast_enough(names, _tied(question, running, {}).with_starts(question.begins_s))
    turns: Turns | None = None
    try:
        if policy == "cheapest":
            found, turns = cheapest(jobs, until)
            most = False
        else:
            jobs = _finite(question, jobs) if policy in FAIR else jobs
            need = on_time(jobs)
            program = PROGRAMS[policy](jobs)
            if policy not in FAIR:  # choose the cheapest of equally good plans
                program = replace(program, terms=(*program.terms, of_time(program.problem)))
            program = replace(program, at_least=need) if need.any() else program
            before = before_each([each.job.id for each in question.demands], after)
            in_order = policy == "makespan" and any(before)
            if not in_order or need.any():  # deadlines are to be met as if all jobs could start now
                found, turns = in_time(jobs, program, until)
            if in_order:
                jobs = replace(tied, deadline_s=np.full(len(tied), np.inf))
                found, turns = makespan_in_order(jobs, before, question.begins_s, until), None
            most = program.terms[0].most
    except InfeasibleError as error:
        raise conflict(names, jobs, error, until) from error
    plan = _read(question, tied, jobs, found, turns, most=most, in_all=policy == "cheapest")
    return plan if found.in_time else replace(plan, stopped_after_s=until.seconds)


def _rates(
    demand: Demand,
    filtering: Filter,
    market: Market,
    perf: PerfBook,
    running: Running | None,
    known: dict[Hashable, dict[int, float]],
) -> dict[int, float]:
    """Steps/s by row of the market, for the rows that matter to a job. `known` has the results for jobs that are not
    running and are equal in all relevant respects.

    Of the usable rows with the same kind of hardware under the same quotas, this is the one where the job costs least,
    including its start; for a job with a deadline, also the one that starts soonest; and the row where the job runs.
    """
    name = demand.job.name
    filtered = usable(demand, filtering, filtering.market, perf, running, None)
    if demand.total_steps is None:
        raise InfeasibleError(f"{name}: its number of steps is not known", hint="set `train.steps` in its job file")
    if evidence_of(demand, filtered.pool, perf) == "none":
        raise InfeasibleError(
            f"{name}: no throughput is known for it on any offer",
            hint="measure it (tradewind profile FILE), or set `expected` in its job file",
        )
    rate = {kind: each.value for kind, each in estimated(demand, filtered.pool, perf, {}).items()}
    steps, hurried = demand.total_steps - demand.done_steps, demand.job.deadline_at_ms is not None
    key = (filtered, steps, hurried, tuple(rate.items())) if running is None else None
    found = known.get(key)
    if found is None:
        rows = _ways(filtered, market, rate, steps, running, hurried=hurried)
        found = {row: rate[kind] for row in rows if (kind := int(market.listing.kind[row])) in rate}
        if key is not None:
            known[key] = found
    if not found:
        full = np.flatnonzero(np.isin(filtered.rejection_reasons, OVER_QUOTA)).tolist()
        over = [row for row in full if row in market.rooms]
        why = f": {why_over_quota(market.rooms[over[0]], demand.nodes)}" if over else ""
        limited = np.flatnonzero(filtered.rejection_reasons == RejectionReason.RENT_LIMIT)
        if limited.size:
            cheapest = int(limited[np.argmin(filtering.market.price[limited])])
            raise InfeasibleError(
                f"{name}: no offer fits it now: {why_over_limits(demand, filtering.market, cheapest)}",
                hint=raising("that limit"),
            )
        raise InfeasibleError(
            f"{name}: no offer fits it now{why}",
            hint="see why: tradewind plan GROUP.yaml --why; then relax its job file",
        )
    return found


def _too_dear(
    demand: Demand, rows: Iterable[int], filtering: Filter, perf: PerfBook, running: Running | None
) -> frozenset[int]:
    """Those of the rows for which the job's own budget may not pay, except where it runs."""
    if budget_left(demand) is None:
        return frozenset()
    filtered = usable(demand, filtering, filtering.market, perf, running, None)
    forecast = forecast_of(demand, filtered.pool, perf, running)
    sure = set(forecast.pool.rows[affordable(demand, forecast) == SAFE].tolist())
    return frozenset(rows) - sure - {forecast.pool.current}


def _ways(
    filtered: Filtered,
    market: Market,
    rate: Mapping[int, float],
    steps: int,
    running: Running | None,
    *,
    hurried: bool,
) -> set[int]:
    """The rows that matter to a job with so many steps left; `hurried`: it has a deadline."""
    kinds, startup_s = market.listing.kind, market.startup_s
    best: dict[tuple[int, tuple[Room, ...]], tuple[float, int, str, int]] = {}
    soonest: dict[tuple[int, tuple[Room, ...]], tuple[float, int, str, int]] = {}
    for row in np.flatnonzero(filtered.rejection_reasons == NONE).tolist():
        if (kind := int(kinds[row])) not in rate:
            continue
        paid_s = steps / rate[kind]
        paid_s += 0.0 if running is not None else float(startup_s[row]) + filtered.setup_s
        key = (kind, market.rooms.get(row, ()))
        price = int(market.price[row])
        this = (price * paid_s, price, market.ids[row], row)
        best[key] = min(best.get(key, this), this)
        if running is None and hurried:
            early = (float(startup_s[row]), *this[1:])
            soonest[key] = min(soonest.get(key, early), early)
    rows = {row for *_, row in (*best.values(), *soonest.values())}
    if running is not None and (here := market.row(running.offer_id)) is not None and market.priced[here]:
        rows.add(here)
    return rows


def _quotas(market: Market, rows: Sequence[int]) -> tuple[tuple[QuotaName, ...], tuple[Quota, ...]]:
    """(names, quotas) of each quota that covers one of the rows. Amounts are in units of the quota."""
    units: dict[QuotaName, float] = {}
    each: dict[QuotaName, dict[int, float]] = {}
    for way, row in enumerate(rows):
        for room in market.rooms.get(row, ()):
            units[room.name] = float(room.units)
            each.setdefault(room.name, {})[way] = float(room.each)
    names = tuple(sorted(units, key=repr))
    quotas = tuple(
        Quota(
            f"{name[1].name} in {name[1].scope}",
            np.array(list(each[name]), dtype=np.int64),
            units[name],
            np.array(list(each[name].values())),
        )
        for name in names
    )
    return names, quotas


def _due_s(demand: Demand, at_ms: int) -> float:
    due = demand.job.deadline_at_ms
    return np.inf if due is None else (due - at_ms) / 1000


def _tied(question: Asked, running: Mapping[str, Running], stays: Mapping[str, float]) -> Collection:
    """The collection, changed so little that only ties are broken (or by `stays`): a job is faster where it runs, and
    each way costs more than the one before it."""
    jobs, rate = question.jobs, question.jobs.rate.copy()
    for index, demand in enumerate(question.demands):
        here = running.get(demand.job.id)
        if here is not None and here.offer_id in question.ids:
            rate[index, question.ids.index(here.offer_id)] *= 1 + stays.get(demand.job.id, STAY)
    usd_per_h = jobs.supply.usd_per_h * (1 + BY_ORDER * np.arange(len(question.rows)))
    return replace(jobs, rate=rate, supply=replace(jobs.supply, usd_per_h=usd_per_h))


def without_deadlines(question: Asked) -> Asked:
    """The same question without the deadlines."""
    return replace(question, jobs=replace(question.jobs, deadline_s=np.full(len(question.jobs), np.inf)))


def less_late(question: Asked, until: TimeLimit) -> tuple[Asked, Integers]:
    """(the question with later deadlines, so that all can be met and the least work is late; the late jobs). Raises
    LimitError."""
    due = question.jobs.with_starts(question.begins_s)
    found = lateness(due, until)
    ends_s = found.ends_s * (1 + 2 * NOTHING)
    ends_s[found.jobs] *= 1 + LEAST_SHARE
    return replace(question, jobs=replace(question.jobs, deadline_s=ends_s - question.begins_s)), found.jobs


def require_limits(question: Asked) -> None:
    """Raises InfeasibleError if a way has no quota, because then no job has to share."""
    unlimited = [name for name, limited in zip(question.ids, question.limited, strict=True) if not limited]
    if unlimited:
        raise InfeasibleError(
            f"nothing limits the machines of {unlimited[0]}, so there is nothing to share",
            hint="use the policy cheapest, or allow only offers that a quota of your account covers",
        )


def _finite(question: Asked, jobs: Collection) -> Collection:
    """The collection with a limited number of machines of each way: as many as its tightest quota leaves. `alone_s`
    values what each job has done as if there had always been as many jobs as now."""
    most = np.full(len(question.rows), np.inf)
    for quota in jobs.quotas:
        each = np.ones(len(quota.ways)) if quota.each is None else quota.each
        most[quota.ways] = np.minimum(most[quota.ways], np.floor(quota.most / each))
    jobs = replace(jobs, supply=replace(jobs.supply, gpus=most))
    done = np.array([float(each.done_steps) for each in question.demands])
    return replace(jobs, alone_s=done / alone(jobs))


def _read(
    question: Asked,
    tied: Collection,
    jobs: Collection,
    found: Allocation,
    turns: Turns | None,
    *,
    most: bool,
    in_all: bool,
) -> Joint:
    """The plan of each job. `jobs` are those that were solved, with the starts of some in their rates; `tied` without.

    Shares are scaled up to what the quotas leave, so that jobs end earlier at the same cost; but not if the `turns` say
    what part of its steps a job does in each way `in_all`. Otherwise, a job that has no share now is expected to run
    later, where it costs least.
    """
    work = turns.work if turns is not None and in_all else None
    smallest = LEAST_SHARE if turns is None else NOTHING
    least = np.maximum(smallest * found.shares.max(axis=1, keepdims=True), RESIDUE)
    all_shares = np.where(found.shares > least, found.shares, 0.0)
    all_shares = _filled(question, all_shares) if work is None else all_shares
    usd_per_h, start_s = tied.usd_per_h, np.zeros(tied.rate.shape) if tied.start_s is None else tied.start_s
    plans = []
    for index, demand in enumerate(question.demands):
        shares, steps = all_shares[index], float(jobs.steps[index])
        done = shares * jobs.rate[index]
        ways = tied.rate[index] > 0
        whole_s = start_s[index][ways] + steps / tied.rate[index][ways]
        speed = begins_s = duration_s = cost = 0.0
        if done.any():
            part = done / done.sum()  # of the steps, and of the start
            begins_s = float(part @ start_s[index]) / float(shares.sum())
            counted_s = steps / float(done.sum())
            duration_s = counted_s if np.isfinite(jobs.deadline_s[index]) else begins_s + counted_s
            speed = steps / (duration_s - begins_s) if steps > 0 else float(done.sum())
            cost = float(part[ways] @ (usd_per_h[index][ways] * whole_s)) / 3600
        elif steps > 0:
            duration_s = float("inf")
            cost = float((usd_per_h[index][ways] * whole_s).min()) / 3600
        if work is not None:
            cost = float(work[index][ways] @ (usd_per_h[index][ways] * whole_s)) / 3600
        if steps <= 0:
            begins_s = duration_s = cost = 0.0
        parts = sorted(
            (Part(question.ids[way], float(shares[way])) for way in np.flatnonzero(shares)),
            key=lambda part: (-part.share, part.offer_id),
        )
        plans.append(JobPlan(demand.job.id, tuple(parts), speed, begins_s, duration_s, cost))
    certificate = found.certificates[0]
    holds_s = np.inf if turns is None else turns.holds_s
    return Joint(tuple(plans), certificate.value, most, certificate.bound, certificate.gap, holds_s=holds_s)


def _filled(question: Asked, shares: Floats) -> Floats:
    """The shares, scaled up job by job as far as the quotas have room."""
    jobs = question.jobs
    each = np.zeros((len(jobs.quotas), shares.shape[1]))
    for number, quota in enumerate(jobs.quotas):
        each[number, quota.ways] = 1.0 if quota.each is None else quota.each
    used = (shares * jobs.gpus[:, None]) @ each.T  # (jobs, quotas)
    left = np.array([quota.most for quota in jobs.quotas]) - used.sum(axis=0)
    found = shares.copy()
    for job in np.flatnonzero(shares.any(axis=1)).tolist():
        takes = used[job] > 0
        room = (left[takes] / used[job][takes]).min(initial=np.inf)
        more = min(1.0 / shares[job].sum() - 1.0, room)
        if more > 0:
            found[job] *= 1.0 + more
            left -= more * used[job]
    return found
