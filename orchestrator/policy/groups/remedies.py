"""Single changes that would make an impossible plan possible, and the cost of the plan with each. All are estimates.

- Later deadlines: the smallest delay that is the same for all jobs, and the smallest for only those jobs that are late.
  With one deadline this is a ratio for the engine: the smallest number z with which every job ends within z of its
  deadline (needs.Finishing). Jobs with different deadlines can take turns (in_turns.py); then it is found by bisection.
- More of one quota: the least use of it with which all deadlines are met within the other quotas, rounded up to whole
  machines. Only quotas with a price in the program of least lateness are considered: by weak duality, more of another
  quota alone does not help.

A quota of 0 hides offers. So the collection is made as if every quota allowed many machines, and then limited again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.formats.readable import YEAR_S
from orchestrator.market import Market, QuotaName, Room
from orchestrator.model import GroupPolicy
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.groups.collection import Collection, Quota, problem_of
from orchestrator.policy.groups.engine import solve
from orchestrator.policy.groups.exact import Ratios
from orchestrator.policy.groups.in_turns import horizon_s, least_use, possible, takes_turns, windows
from orchestrator.policy.groups.lateness import lateness
from orchestrator.policy.groups.linear import OutOfTime
from orchestrator.policy.groups.needs import Finishing
from orchestrator.policy.groups.planning import FAIR, LEAST_SHARE, NOWHERE, Asked, asked, joint, require_limits
from orchestrator.policy.groups.policies.cost import HARDLY, fast_enough, on_time
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Allocation, Program, Total
from orchestrator.policy.groups.time_limit import TimeLimit

Flags = NDArray[np.bool_]

SEARCH_S = 20.0
"""How long the solver may search for all ways out together, in seconds."""
MOST_TRIED = 6
"""The most quotas that are tried, those that help most per unit first. Each needs a program, and one or two plans."""
OF_DELAY = 0.5
"""The part of the time for finding the delay of the deadlines."""
A_LOT = 1_000_000
"""Units of a quota that are more than enough."""
PRECISE = 1e-4
"""The precision of the smallest delay, relative to the time until all jobs can be done. It is rounded up anyway."""
ROUNDING = 1e-6
"""A number that exceeds a whole number by less than this counts as whole."""
STEPS_S = (
    (100.0, 1.0),
    (5400.0, 60.0),
    (172_800.0, 360.0),
    (864_000.0, 8640.0),
    (2 * YEAR_S, 86_400.0),
    (math.inf, YEAR_S / 10),
)
"""Delays below the first number are rounded up to multiples of the second, which is the last digit that
`readable.span` shows of them: so the delay that is named is enough."""


@dataclass(frozen=True, slots=True)
class Later:
    """If the deadlines of `jobs` (names) are `delay_s` later, the plan costs `cost_usd`. `all_deadlines`: no other job
    has a deadline."""

    jobs: tuple[str, ...]
    all_deadlines: bool
    delay_s: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Raised:
    """With `limit` as the limit of `quota`, the plan costs `cost_usd`."""

    quota: QuotaName
    limit: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Remedies:
    """Each entry of `later` and `raised` is enough on its own; raising only a quota in `not_enough` is not.

    `unknown` are quotas for which there was no time; `delay_unknown`: there was no time for the delay.
    """

    later: tuple[Later, ...] = ()
    raised: tuple[Raised, ...] = ()
    not_enough: tuple[QuotaName, ...] = ()
    unknown: tuple[QuotaName, ...] = ()
    delay_unknown: bool = False


def find_remedies(
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    policy: GroupPolicy,
    running: Mapping[str, Running] = NOWHERE,
    *,
    limits: MoveLimits | None = None,
    until: TimeLimit | None = None,
) -> Remedies:
    """The ways out for jobs that have no joint plan; none if the cause is something other than deadlines and quotas.

    When the time of `until` is up (default: SEARCH_S seconds of solving), the rest is reported as unknown.
    """
    until = TimeLimit(SEARCH_S) if until is None else until
    opened, rooms = _opened(market)
    try:
        question = asked(demands, opened, perf, running, limits=limits)
        if policy in FAIR:
            require_limits(question)
    except InfeasibleError:
        return Remedies()
    whole = question.jobs.with_starts(question.begins_s)
    question = replace(question, jobs=whole, begins_s=np.where(np.isfinite(whole.deadline_s), 0.0, question.begins_s))
    search = _Search(question, policy, running, tuple(rooms[name] for name in question.quotas))
    later, delay_unknown = tuple[Later, ...](), False
    try:
        later = search.later(until.part(OF_DELAY))
    except (LimitError, InfeasibleError):  # the latter: policies that count whole machines need a longer delay
        delay_unknown = True
    try:
        binding = search.binding(until)
    except LimitError:
        return Remedies(later, unknown=tuple(each.name for each in search.rooms), delay_unknown=delay_unknown)
    raised: list[Raised] = []
    not_enough: list[QuotaName] = []
    unknown = [search.rooms[index].name for index in binding[MOST_TRIED:]]
    for index in binding[:MOST_TRIED]:
        name = search.rooms[index].name
        try:
            found = search.raised(index, until)
        except LimitError:
            unknown.append(name)
            continue
        if found is None:
            not_enough.append(name)
        else:
            raised.append(found)
    return Remedies(later, tuple(raised), tuple(not_enough), tuple(unknown), delay_unknown)


def _opened(market: Market) -> tuple[Market, dict[QuotaName, Room]]:
    """(the market as if each quota allowed A_LOT more, what each quota really leaves). The latter is keyed by the names
    of quotas in that market."""
    changed: dict[tuple[Room, ...], tuple[Room, ...]] = {}
    truth: dict[QuotaName, Room] = {}
    rooms = {}
    for row, of_row in market.rooms.items():
        if of_row not in changed:
            more = [replace(each, quota=replace(each.quota, limit=each.quota.limit + A_LOT)) for each in of_row]
            truth |= {raised.name: each for raised, each in zip(more, of_row, strict=True)}
            changed[of_row] = tuple(more)
        rooms[row] = changed[of_row]
    return market.with_fields(rooms=rooms), truth


@dataclass(frozen=True, slots=True)
class _Search:
    """`question` is asked as if quotas allowed a lot; `rooms` are what each of its quotas really leaves."""

    question: Asked
    policy: GroupPolicy
    running: Mapping[str, Running]
    rooms: tuple[Room, ...]

    @property
    def units(self) -> Floats:
        """(quotas,): how many units each quota really leaves."""
        return np.array([float(each.units) for each in self.rooms])

    def within(self, units: Floats) -> Asked | None:
        """The question with `units` (quotas,) of each quota; None if some job then has no offer.

        A job may use the offers whose quotas have room for all its machines, and the offer where it runs.
        """
        fits = _fits(self.question, units)
        for index, demand in enumerate(self.question.demands):
            here = self.running.get(demand.job.id)
            if here is not None and here.offer_id in self.question.ids:
                fits[index, self.question.ids.index(here.offer_id)] = True
        jobs = self.question.jobs
        rate = np.where(fits, jobs.rate, 0.0)
        if not (rate > 0).any(axis=1).all():
            return None
        quotas = tuple(replace(each, most=float(most)) for each, most in zip(jobs.quotas, units, strict=True))
        return replace(self.question, jobs=replace(jobs, rate=rate, quotas=quotas))

    def later(self, until: TimeLimit) -> tuple[Later, ...]:
        """The smallest delay of all deadlines, if it is smaller than that of only the late jobs; and the latter, if
        there is time.

        Empty if no deadline is to blame. Raises LimitError, and InfeasibleError if the delay turns out not to be
        enough.
        """
        there = self.within(self.units)
        if there is None:
            return ()
        named = np.zeros(len(there.jobs), dtype=bool)
        named[lateness(there.jobs, until).jobs] = True
        if not named.any():
            return ()
        every = np.isfinite(there.jobs.deadline_s)
        found = self._delayed(there, every, until)
        if named[every].all():
            return (found,)
        try:
            alone = self._delayed(there, named, until)
        except (LimitError, InfeasibleError):
            return (found,)
        return (alone,) if alone.delay_s <= found.delay_s else (found, alone)

    def _delayed(self, there: Asked, named: Flags, until: TimeLimit) -> Later:
        """The smallest delay of the deadlines of the jobs in `named` (jobs,)."""
        jobs = there.jobs
        due = np.isfinite(windows(jobs))
        if len(np.unique(jobs.deadline_s[due].round(3))) > 1 or not named[due].all():
            delay_s = _delay_in_turns_s(jobs, named, until)
        else:
            delay_s = _rounded_up(_delay_s(jobs, named, until))
        cost_usd = self._cost_usd(replace(there, jobs=_later(jobs, named, delay_s)), until)
        names = tuple(there.demands[int(job)].job.name for job in np.flatnonzero(named))
        return Later(names, bool(named[np.isfinite(jobs.deadline_s)].all()), delay_s, cost_usd)

    def binding(self, until: TimeLimit) -> list[int]:
        """The quotas that may be to blame (their indices), those of which a unit helps most first. Raises
        LimitError."""
        question = self.question
        quotas = tuple(
            replace(each, most=float(most)) for each, most in zip(question.jobs.quotas, self.units, strict=True)
        )
        jobs = replace(question.jobs, quotas=quotas)
        found = lateness(jobs, until)
        if found.jobs.size:
            prices = found.prices
            return [int(each) for each in np.argsort(-prices, kind="stable") if prices[each] > HARDLY]
        return [
            index
            for index, quota in enumerate(quotas)
            if ((jobs.rate[:, quota.ways] > 0) & (_taken(question, quota)[:, quota.ways] > quota.most)).any()
        ]

    def raised(self, index: int, until: TimeLimit) -> Raised | None:
        """The lowest limit of one quota that is enough; None if no limit is. Raises LimitError."""
        quota, room = self.question.jobs.quotas[index], self.rooms[index]
        size = 1.0 if quota.each is None else float(quota.each.min())
        fewest = math.floor(room.units / size) + 1
        for units in self._enough(index, until):
            machines = max(math.ceil(units / size - ROUNDING), fewest)
            most = self.units
            most[index] = machines * size
            there = self.within(most)
            if there is None:
                continue
            try:
                cost_usd = self._cost_usd(there, until)
            except InfeasibleError:
                continue
            return Raised(room.name, room.quota.used + room.taken + round(machines * size), cost_usd)
        return None

    def _enough(self, index: int, until: TimeLimit) -> Iterator[float]:
        """How many units of one quota may be enough, in the order to try.

        First the fewest if jobs can share machines in time, then what the largest job there takes, because it needs all
        its machines at once.
        """
        without = self.units
        without[index] = np.inf
        there = self.within(without)
        if there is None:
            return
        jobs, quota = there.jobs, there.jobs.quotas[index]
        rest = replace(jobs, quotas=jobs.quotas[:index] + jobs.quotas[index + 1 :])
        taken = _taken(there, quota)
        try:
            if takes_turns(jobs):
                units, used = least_use(jobs, index, until)
            else:
                need = on_time(jobs)
                problem, first = problem_of(rest)
                fast_enough(rest, need)
                found = _solved(Program(problem, (Total(taken[first], most=False),), need), until)
                units, used = found.certificates[0].value, found.shares > LEAST_SHARE
        except InfeasibleError:
            return
        least = max(float(np.where(jobs.rate > 0, taken, np.inf).min(axis=1).max()), units)
        yield least
        yield max(least, float(taken[used].max(initial=0.0)))

    def _cost_usd(self, question: Asked, until: TimeLimit) -> float:
        return joint(question, self.policy, self.running, until=until).cost_usd


def _later(jobs: Collection, named: Flags, delay_s: float) -> Collection:
    return replace(jobs, deadline_s=np.where(named, jobs.deadline_s + delay_s, jobs.deadline_s))


def _delay_s(jobs: Collection, named: Flags, until: TimeLimit) -> float:
    """The smallest delay if all jobs in `named` (jobs,) have the same deadline, and no others have one."""
    base = max(float(jobs.deadline_s[named].max()), 0.0)  # so that z, the delay and this, is above 0
    age_s = np.where(named, base - jobs.deadline_s, 0.0)
    problem, _ = problem_of(jobs)
    needs = Finishing(np.where(named, jobs.steps, 0.0), age_s, np.ones(len(jobs)))
    found = Ratios(problem, until=until, same=PRECISE).best(needs, np.zeros(len(jobs)))
    if not found.in_time:
        raise OutOfTime(until)
    return found.certificate.value - base


def _delay_in_turns_s(jobs: Collection, named: Flags, until: TimeLimit) -> float:
    """The smallest delay of the deadlines of the jobs in `named` (jobs,) if jobs take turns, rounded up."""
    alone_s = (jobs.steps / jobs.rate.max(axis=1) - jobs.deadline_s)[named & (jobs.steps > 0)]
    short_s, enough_s = float(alone_s.max(initial=0.0)), horizon_s(jobs) - float(jobs.deadline_s[named].min())
    precise_s = PRECISE * enough_s
    while enough_s - short_s > precise_s:
        tried_s = (short_s + enough_s) / 2
        if possible(_later(jobs, named, tried_s), until):
            enough_s = tried_s
        else:
            short_s = tried_s
    least_s = _rounded_up(short_s)
    return least_s if possible(_later(jobs, named, least_s), until) else _rounded_up(enough_s)


def _fits(question: Asked, units: Floats) -> Flags:
    """(jobs, ways): whether `units` (quotas,) of each quota have room for all machines of the job."""
    fits = np.ones(question.jobs.rate.shape, dtype=bool)
    for quota, most in zip(question.jobs.quotas, units, strict=True):
        fits &= _taken(question, quota) <= most
    return fits


def _taken(question: Asked, quota: Quota) -> Floats:
    """(jobs, ways): the units of the quota that all machines of the job take."""
    taken = np.zeros(question.jobs.rate.shape)
    taken[:, quota.ways] = question.jobs.gpus[:, None] * (1.0 if quota.each is None else quota.each)
    return taken


def _solved(program: Program, until: TimeLimit) -> Allocation:
    """The best answer. Raises InfeasibleError; also LimitError if the answer was cut off."""
    found = solve(program, until=until)
    if not found.in_time:
        raise OutOfTime(until)
    return found


def _rounded_up(delay_s: float) -> float:
    step_s = next(step_s for below_s, step_s in STEPS_S if delay_s < below_s)
    return math.ceil(delay_s / step_s - ROUNDING) * step_s
