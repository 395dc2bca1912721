"""The two kinds of terms as the decomposition sees them: what mixes cost at given prices, bounds, and how limits may be
exceeded.

A total may exceed a limit at a penalty, but a final answer must not. A ratio is aimed close to its bound. If its needs
exceed the limits by a factor, the time of every job is divided by that factor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.policy.groups.exact import Ratios, solve_exactly
from orchestrator.policy.groups.mixing import Mixed
from orchestrator.policy.groups.needs import Needs, Some, WithFloor
from orchestrator.policy.groups.patterns import Patterns, cheapest, priced, some_jobs
from orchestrator.policy.groups.problem import Floats, Integers, Problem, summed, with_a_way_out
from orchestrator.policy.groups.program import Certificate, Program, Total
from orchestrator.policy.groups.time_limit import TimeLimit

OVER = 1e-7
"""A limit that is exceeded by less than this, relatively, counts as kept: the solver's tolerance."""
PENALTY = 20.0
ROUGHLY = 1e-3
"""The precision of the ratio of a sample."""
LITTLE = 1e-3
"""The part of all prices that is given even to limits which do not bind in the sample, so that jobs do not waste
them."""
NEWTON_STEPS = 40


def exceeds(used: Floats, most: Floats) -> bool:
    """Whether more is `used` (limits,) of some limit than there is (`most` (limits,))."""
    return bool((used > most * (1 + OVER) + OVER).any())


def shared_by_all(problem: Problem) -> Problem:
    """The problem without the limits that apply to only some jobs (such as budgets of users), because a sample says
    little about them."""
    limits = tuple(
        each if len(each.at) == 1 else replace(each, at=np.full((1, 1), -1), amount=np.zeros((1, 1)))
        for each in problem.limits
    )
    return replace(problem, limits=limits)


def _part(problem: Problem, jobs: Integers) -> Floats:
    """(limits,): the part of each limit for `jobs`, in proportion to their number."""
    return problem.most * (len(jobs) / problem.jobs)


class PricedTotal:
    """The least sum of `value` (jobs, ways) x time with which every job has at least the rate `need` (jobs,)."""

    def __init__(self, problem: Problem, value: Floats, need: Floats, inside: Floats | None = None) -> None:
        """`inside` (limits,): the prices of limits that `value` already includes; none by default."""
        self.problem, self.value, self.need = problem, value, need
        self.inside = np.zeros(len(problem.most)) if inside is None else inside
        self.bound, self.prices, self.weights = -np.inf, np.zeros(len(problem.most)), np.zeros(problem.jobs)
        self._dearest = float(np.abs(value).max(initial=0.0))

    def sampled(self, jobs: Integers, until: TimeLimit) -> Floats:
        """(limits,): the prices when a sample of the jobs has its part of the limits."""
        part = with_a_way_out(shared_by_all(some_jobs(self.problem, jobs, _part(self.problem, jobs))), self.need[jobs])
        dear = np.where(self.need[jobs] > 0, PENALTY * float(np.abs(self.value).max(initial=0.0)), 0.0)
        value = np.column_stack([self.value[jobs], dear])
        program = Program(part, (Total(value, most=False),), self.need[jobs])
        (certificate,) = solve_exactly(program, until=until).certificates
        return certificate.prices

    def mixes(self, prices: Floats) -> Patterns:
        """The cheapest mix of each job at `prices` (limits,)."""
        return cheapest(self.problem.rate, priced(self.problem, self.value, prices), self.need)

    def beside(self, prices: Floats, steps: Floats) -> Floats:
        """(limits,): the prices, including those inside `value`, times e to the power of `steps` (limits,), without
        those inside."""
        return np.asarray((prices + self.inside) * np.exp(steps) - self.inside)

    def mixes_of(self, prices: Floats, jobs: Integers) -> Patterns:
        """The cheapest mixes of some jobs at `prices` (limits,)."""
        part = some_jobs(self.problem, jobs, self.problem.most)
        return cheapest(part.rate, priced(part, self.value[jobs], prices), self.need[jobs]).renamed(jobs)

    def bounded(self, prices: Floats) -> Patterns:
        """The cheapest mixes at `prices`. If these prices give the best bound so far, keeps the bound and the
        prices."""
        table = priced(self.problem, self.value, prices)
        mixes = cheapest(self.problem.rate, table, self.need)
        bound = float(mixes.total(table).sum() - prices @ self.problem.most)
        if bound > self.bound:
            self.bound, self.prices, self.weights = bound, prices, mixes.slope
        return mixes

    def worth(self, candidates: Patterns) -> Floats:
        """(candidates,): what each costs."""
        return candidates.total(self.value)

    def exceeding(self, most: Floats) -> tuple[Integers, Integers, Floats, Floats]:
        """One column for each limit, with a penalty as its cost."""
        every = np.arange(len(most))
        dear = PENALTY * (self._dearest + float(self.prices.max(initial=0.0)))
        return every, every, np.ones(len(most)), np.full(len(most), dear)

    def left_over(self, most: Floats, used: Floats) -> Floats:
        """(limits,): what the next group has in addition to its own part, after a group that had `most` has `used` some
        of it."""
        return np.maximum(most - used, 0.0)

    def reached(self, found: Mixed) -> float:
        """The sum that a choice reaches."""
        return float(found.part @ found.candidates.total(self.value))

    def gap(self, found: Mixed) -> float:
        """The certified gap of a choice; infinite if it exceeds a limit."""
        if exceeds(found.used, self.problem.most):
            return np.inf
        return (self.reached(found) - self.bound) / max(abs(self.bound), 1e-12)


class PricedRatio:
    """The best z of `needs`. Mixes meet the needs at the bound of z, as far as each job can."""

    def __init__(self, problem: Problem, needs: Needs, floor: Floats) -> None:
        self.problem, self.needs, self.floor = problem, WithFloor(needs, floor), floor
        self._fastest = problem.rate.max(axis=1)
        self.bound = needs.reached(self._fastest)
        self._free = np.zeros(problem.rate.shape)
        self.prices, self.weights = np.zeros(len(problem.most)), np.zeros(problem.jobs)
        self._guess = self.prices

    @property
    def _need(self) -> Floats:
        return np.asarray(np.minimum(self.needs.at(self.bound), self._fastest))

    def sampled(self, jobs: Integers, until: TimeLimit) -> Floats:
        """(limits,): the prices when a sample of the jobs has its part of the limits."""
        part = shared_by_all(some_jobs(self.problem, jobs, _part(self.problem, jobs)))
        best = Ratios(part, until=until, same=ROUGHLY).best(Some(self.needs, jobs), np.zeros(len(jobs)))
        worth, most = best.certificate.prices, np.maximum(self.problem.most, 1e-12)
        every = float(worth @ most) or 1.0  # even a limit that the sample has plenty of gets a small price
        return np.asarray(worth / every + LITTLE / most)

    def bounded(self, prices: Floats) -> Patterns:
        """The cheapest mixes at `prices`. If these prices give the best bound so far, keeps the bound and the prices.

        At any possible z, the needs cost at most what all limits are worth. Newton's method finds the bound from the
        safe side.
        """
        self._guess = prices
        table = priced(self.problem, self._free, prices)
        most = float(prices @ self.problem.most)
        z, mixes = self.bound, cheapest(self.problem.rate, table, self._need)
        for _ in range(NEWTON_STEPS):
            over = float(mixes.total(table).sum()) - most
            slope = float(mixes.slope @ self.needs.slope(z))
            if not over > 1e-12 * most or slope == 0:
                break
            z -= over / slope
            self.bound, self.prices, self.weights = z, prices, mixes.slope
            mixes = cheapest(self.problem.rate, table, self._need)
            if abs(over / slope) <= 1e-9 * abs(z):
                break
        return mixes

    def aimed(self, short: float) -> PricedTotal:
        """The total that meets the needs at a z near its bound, with the least use of the limits, at the last prices.
        `short` is how far z is from the bound, as a part of it."""
        z = self.bound * (1 - short if self.needs.rising else 1 + short)
        use = priced(self.problem, self._free, self._guess)
        return PricedTotal(self.problem, use, np.minimum(self.needs.at(z), self._fastest), self._guess)

    def scale(self, found: Mixed) -> float:
        """The factor for the time of every job with which all limits are kept."""
        most = self.problem.most
        return 1 / max(1.0, float((found.used / np.where(most > 0, most, 1e-300)).max(initial=0.0)))

    def reached(self, found: Mixed) -> float:
        """The z that a choice reaches, after scaling."""
        rates = found.candidates.total(self.problem.rate) * found.part
        of_jobs = summed(found.candidates.job, rates, self.problem.jobs)
        return self.needs.reached(of_jobs * self.scale(found))

    def certificate(self, found: Mixed) -> Certificate:
        """The certificate of a choice: the z that it reaches, and the bound."""
        slope = abs(float(self.weights @ self.needs.slope(self.bound))) or 1.0
        return Certificate(self.reached(found), self.bound, self.prices / slope, self.weights / slope)
