"""Large programs of jobs that all differ: prices from a sample, then a small program for each group of jobs.

1. A sample of the jobs, with its part of every limit, is solved exactly. Its prices are close to the true ones.
2. Each job's cheapest mixes at those prices, and at prices close to them, become its candidates (patterns.py).
3. The jobs are dealt into groups (POP, Narayanan et al., SOSP 2021). Each group gets the part of every limit that its
   jobs would use at these prices, and what the groups before it left over. It chooses among its candidates by a linear
   program. The prices of that program give more candidates, twice, or more often while the group needs more than its
   limits. In the end, such a group may also use what later groups left over.
4. The mean of the groups' prices bounds the optimum (patterns.py, weak duality), which certifies the answer.

A ratio is turned into a total: to meet the needs a little below the bound, with the least use of the limits.

If the certified gap is not small enough, all groups choose together, repeatedly, each time with more candidates (column
generation); this ends at the optimum. The solver always starts from its solution with fewer candidates.

When the time is up, the best answer so far is returned. At first, that is each job's cheapest mix, if the limits have
room for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from orchestrator.policy.groups.exact import rates
from orchestrator.policy.groups.linear import Contradiction, OutOfTime
from orchestrator.policy.groups.mixing import Mixed, choose
from orchestrator.policy.groups.patterns import Patterns, joined, one_class_each, usage, without_closed_ways
from orchestrator.policy.groups.priced import OVER, PricedRatio, PricedTotal, exceeds
from orchestrator.policy.groups.problem import Floats, Integers, Problem, summed
from orchestrator.policy.groups.program import Allocation, Certificate, Program, Total
from orchestrator.policy.groups.time_limit import TimeLimit


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is computed. `sample` and `group` are numbers of jobs.

    Candidates are also searched `times` times at prices that deviate from the first ones by `beside` (standard
    deviation, relative), and `passes` times at a group's own prices.
    """

    sample: int
    group: int
    times: int
    beside: float
    passes: int = 2


FOR_TOTALS = Effort(200, 625, 6, 0.05)
FOR_RATIOS = Effort(400, 500, 4, 0.03)  # the worst job decides, so prices must be more precise
AIMS = (0.7, 0.85, 0.85, 0.85, 0.85)
"""How far from its bound a ratio is aimed, as parts of the allowed gap, one aim after the other. What is left of the
gap is for what the decomposition into groups loses. An aim that turns out to be impossible makes the bound more precise
for the next one."""
PASSES = 12
"""The most passes of a group that exceeds a limit: with enough candidates, it may not have to."""
ROUNDS = 20
OF_SAMPLE = 0.25
"""The part of the time that computing the prices of the sample may take. Without them, all limits have the price 0 at
first."""


def solve_decomposed(program: Program, *, gap: float = 5e-3, until: TimeLimit | None = None) -> Allocation:
    """An answer whose certified gap is at most `gap`, for a program with one term and without pairs.

    When the time is up: a certified answer with a larger gap, or OutOfTime if there is none. An answer for a ratio in
    which a job is slower than it must be is also marked as not `in_time`; it must not be used. Raises Contradiction if
    the limits cannot all be kept.
    """
    until = TimeLimit() if until is None else until
    (term,) = program.terms
    problem = without_closed_ways(one_class_each(program.problem))
    floor = np.zeros(problem.jobs) if program.at_least is None else program.at_least
    order = _dealt(problem)
    lot = np.random.default_rng(0).permutation(problem.jobs)
    if isinstance(term, Total):
        value = term.value[program.problem.class_of] * (-1.0 if term.most else 1.0)
        total = PricedTotal(problem, value, floor)
        prices = _sampled(total.sampled, problem, lot[: FOR_TOTALS.sample], until)
        found, in_time = _chosen(total, prices, order, FOR_TOTALS, lambda mixed: total.gap(mixed) <= gap, until)
        if total.gap(found) == np.inf:
            if not in_time:
                raise OutOfTime(until)
            raise Contradiction("the limits contradict each other", hint="relax a deadline, a budget or a quota")
        sign = -1.0 if term.most else 1.0
        certificate = Certificate(sign * total.reached(found), sign * total.bound, total.prices, total.weights)
        answer = _allocation(problem, program.problem.class_of, found, 1.0, certificate)
        return replace(answer, in_time=in_time)
    ratio = PricedRatio(problem, term.needs, floor)
    ratio.bounded(_sampled(ratio.sampled, problem, lot[: FOR_RATIOS.sample], until))
    best: tuple[float, Mixed] | None = None
    for aim in AIMS:
        aimed = ratio.aimed(aim * gap)
        enough = partial(_certified, ratio, aimed, gap)
        found, in_time = _chosen(aimed, np.zeros(len(problem.most)), order, FOR_RATIOS, enough, until)
        reached = ratio.certificate(found).value * (1.0 if term.most else -1.0)
        if best is None or reached > best[0]:
            best = reached, found
        if enough(best[1]) or not in_time:
            break
    assert best is not None
    found = best[1]
    certificate = ratio.certificate(found)
    answer = _allocation(problem, program.problem.class_of, found, ratio.scale(found), certificate)
    kept = bool((answer.rates >= floor * (1 - OVER)).all())  # if not, the scale made some job slower than it must be
    return replace(answer, in_time=in_time and kept)


def _certified(ratio: PricedRatio, aimed: PricedTotal, gap: float, found: Mixed) -> bool:
    """Whether the certified gap of the ratio is small enough."""
    ratio.bounded(aimed.inside + aimed.prices)
    return ratio.certificate(found).gap <= gap


def _sampled(
    prices_of: Callable[[Integers, TimeLimit], Floats], problem: Problem, jobs: Integers, until: TimeLimit
) -> Floats:
    try:
        return prices_of(np.sort(jobs), until.part(OF_SAMPLE))
    except OutOfTime:
        return np.zeros(len(problem.most))


def _chosen(
    work: PricedTotal,
    prices: Floats,
    order: Integers,
    effort: Effort,
    enough: Callable[[Mixed], bool],
    until: TimeLimit,
) -> tuple[Mixed, bool]:
    """(the best choice found, whether there was enough time). Chooses first by groups, then for all jobs together until
    `enough`."""
    chance = np.random.default_rng(1)
    around = [work.beside(prices, effort.beside * chance.standard_normal(len(prices))) for _ in range(effort.times)]
    ways = work.problem.rate.shape[1]
    candidates = joined([work.bounded(prices), *(work.mixes(each) for each in around)], ways)
    best = _alone(work)
    try:
        best = found = _by_groups(work, candidates, order, effort, until)
        for _ in range(ROUNDS):
            if enough(best):
                break
            more = joined([found.candidates, work.bounded(found.prices)], ways)
            if found.basis is not None and len(more) == len(found.candidates):  # it is the optimum
                break
            found = choose(work, more, work.problem.most, until, found)
            best = min(found, best, key=work.gap)
    except OutOfTime:
        return best, False
    return best, True


def _alone(work: PricedTotal) -> Mixed:
    """The choice in which each job follows its cheapest mix at the best prices so far, whether or not the limits have
    room."""
    mixes = work.mixes(work.prices)
    _, limit, amount = usage(work.problem, mixes)
    return Mixed(mixes, np.ones(len(mixes)), summed(limit, amount, len(work.prices)), work.prices)


def _dealt(problem: Problem) -> Integers:
    """The jobs in the order in which they are dealt into groups. The order is random, but jobs that share a limit which
    applies to only some jobs (such as the budget of a user) follow each other."""
    chance = np.random.default_rng(0)
    order = chance.permutation(problem.jobs)
    for limits in problem.limits:
        if len(limits.at) > 1:
            lot = np.append(chance.permutation(len(limits.most)), -1)
            order = order[np.argsort(lot[limits.at.max(axis=1)][order], kind="stable")]
    return order


def _by_groups(work: PricedTotal, candidates: Patterns, order: Integers, effort: Effort, until: TimeLimit) -> Mixed:
    """Each group chooses within its part of the limits and what is left over. Its prices then give more candidates."""
    problem = work.problem
    groups = np.array_split(order, max(1, round(len(order) / effort.group)))
    of = np.empty(len(order), dtype=np.int64)
    for number, jobs in enumerate(groups):
        of[jobs] = number
    demand = np.zeros((len(groups), len(problem.most)))
    first = work.mixes(work.prices)
    row, limit, amount = usage(problem, first)
    np.add.at(demand, (of[first.job[row]], limit), amount)
    even = np.array([len(jobs) for jobs in groups])[:, None] / len(order)
    total = demand.sum(axis=0)
    parts = np.where(total > 0, demand / np.where(total > 0, total, 1.0), even)
    left = np.zeros(len(problem.most))
    done: list[Mixed] = []
    short: list[int] = []  # groups that need more than they have
    for number, jobs in enumerate(groups):
        most = parts[number] * problem.most + left
        begun = choose(work, candidates.of(np.flatnonzero(of[candidates.job] == number)), most, until)
        done.append(_with_more(work, jobs, begun, most, effort.passes, until))
        if exceeds(done[number].used, most):
            short.append(number)
        left = work.left_over(most, done[number].used)
    used = np.sum([each.used for each in done], axis=0)
    for number in short:  # they may also use what later groups left over
        others = used - done[number].used
        most = np.maximum(problem.most - others, 0.0)
        again = choose(work, done[number].candidates, most, until, done[number])
        done[number] = _with_more(work, groups[number], again, most, 0, until)
        used = others + done[number].used
    prices = (parts * np.array([each.prices for each in done])).sum(axis=0)
    work.bounded(prices)
    together = joined_parts([each.candidates for each in done])
    return Mixed(together, np.concatenate([each.part for each in done]), used, prices)


def _with_more(work: PricedTotal, jobs: Integers, found: Mixed, most: Floats, least: int, until: TimeLimit) -> Mixed:
    """The choice of a group with more candidates, found at its own prices: at least `least` times, and more often while
    the group exceeds its limits and new candidates are found."""
    for passed in range(PASSES):
        if passed >= least and not exceeds(found.used, most):
            break
        more = joined([found.candidates, work.mixes_of(found.prices, np.sort(jobs))], work.problem.rate.shape[1])
        if len(more) == len(found.candidates):
            break
        found = choose(work, more, most, until, found)
    return found


def joined_parts(several: list[Patterns]) -> Patterns:
    """The patterns of different jobs, one list after the other."""
    names = ("job", "first", "first_time", "second", "second_time", "slope")
    return Patterns(*(np.concatenate([getattr(each, name) for each in several]) for name in names))


def _allocation(problem: Problem, of: Integers, found: Mixed, scale: float, certificate: Certificate) -> Allocation:
    """The allocation of a choice. `problem` has a class for each job; `of` (jobs,) are the classes of the original
    program."""
    shares = found.candidates.shares(problem.rate.shape, found.part) * scale
    nothing: Floats = np.zeros(0)
    times = np.zeros((int(of.max(initial=-1)) + 1, shares.shape[1]))
    np.add.at(times, of, shares)
    return Allocation(times, nothing, shares, rates(problem, shares, nothing), (certificate,))
