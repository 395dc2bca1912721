"""The exact engine: one linear program for each term (a few for a ratio that is not linear), with certified answers.

A term's optimum becomes a limit for the terms after it. A ratio is found by Newton's method on tangents of the needs,
which bound them from below. It ends when the number no longer changes, after about five programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.policy.groups.certificate import Multipliers, bound_of_ratio, bound_of_total
from orchestrator.policy.groups.columns import Columns, columns, conditions
from orchestrator.policy.groups.curves import Curves, curves
from orchestrator.policy.groups.linear import Linear, OutOfTime, Solution, solve, solve_by_columns
from orchestrator.policy.groups.needs import Needs, WithFloor
from orchestrator.policy.groups.problem import Floats, Limits, Problem
from orchestrator.policy.groups.program import Allocation, Certificate, Program, Ratio, Total
from orchestrator.policy.groups.split import split
from orchestrator.policy.groups.time_limit import TimeLimit

SAME = 1e-11
"""A ratio that changes by less than this, relatively, has been found."""
SLACK = 1e-9
"""By how much, relatively, later terms may worsen a term's optimum: the solver's tolerance."""
NEWTON_STEPS = 40
VISIBLE = 1e-3
"""A condition that asks for something asks for at least this much, in its row's unit: 10,000 times what the solver
treats as zero."""
MANY_PAIRS = 500
"""With more pairs than this, only those that help become columns."""


def solve_exactly(program: Program, *, central: bool = False, until: TimeLimit | None = None) -> Allocation:
    """The best answer, with a certificate for each term; `central` as in linear.solve.

    When the time is up: the best answer that the solver has, certified too, if it keeps all limits; otherwise raises
    OutOfTime. Raises Contradiction if the limits cannot all be kept.
    """
    until = TimeLimit() if until is None else until
    problem = program.problem
    floor = np.zeros(problem.jobs) if program.at_least is None else program.at_least
    certificates: list[Certificate] = []
    times = together = shares = np.zeros(0)
    in_time = True
    for term in program.terms:
        if isinstance(term, Ratio):
            best = Ratios(problem, central=central, until=until).best(term.needs, floor)
            times, together, shares, certificate = best.times, best.together, best.shares, best.certificate
            in_time &= best.in_time
            z = certificate.value
            floor = np.maximum(floor, term.needs.at(z * (1 - SLACK) if term.most else z * (1 + SLACK)))
        else:
            times, together, certificate, ended = _total(problem, term, floor, central, until)
            in_time &= ended
            shares = split(problem, times, floor)
            problem = problem.and_limits(_as_limit(problem, term, certificate.value))
        certificates.append(certificate)
    return Allocation(times, together, shares, rates(problem, shares, together), tuple(certificates), in_time)


def rates(problem: Problem, shares: Floats, together: Floats) -> Floats:
    """(jobs,): the steps/s of each job: from its `shares` (jobs, ways), and from its part of what its class does in
    pairs (`together` (pairs,))."""
    found: Floats = (problem.rate[problem.class_of] * shares).sum(axis=1)
    if problem.pairs is not None:
        pairs, paired = problem.pairs, np.zeros(len(problem.rate))
        np.add.at(paired, pairs.first, pairs.rate_first * together)
        np.add.at(paired, pairs.second, pairs.rate_second * together)
        found = found + (paired / np.maximum(problem.count, 1))[problem.class_of]
    return found


def _total(
    problem: Problem, term: Total, floor: Floats, central: bool, until: TimeLimit
) -> tuple[Floats, Floats, Certificate, bool]:
    layout = columns(problem)
    asking = curves(problem, equal=_equal(problem, floor), asking=floor)
    asked = asking.asked(floor)
    cost = layout.flat(term.value, term.of_pairs) * (-1.0 if term.most else 1.0)
    scale = float(np.abs(cost).max(initial=0.0)) or 1.0
    program = _Build(layout, asking, None, asked)
    found = _solved(program.linear(asked, np.zeros(0), cost / scale), layout, None, central, until)
    multipliers = program.multipliers(found, scale)
    bound = bound_of_total(layout, asking, asked, cost, multipliers)
    value = float(cost @ found.x)
    sign = -1.0 if term.most else 1.0
    return (
        *layout.unflat(found.x),
        Certificate(sign * value, sign * bound, multipliers.prices, multipliers.weights),
        found.in_time,
    )


def _solved(linear: Linear, layout: Columns, basis: Any, central: bool, until: TimeLimit) -> Solution:
    if layout.pairs <= MANY_PAIRS:
        return solve(linear, start=basis, central=central, until=until)
    first = np.ones(len(linear.cost), dtype=bool)
    first[layout.singles : layout.singles + layout.pairs] = False
    return solve_by_columns(linear, first, each=2 * len(layout.problem.rate), until=until)


@dataclass(frozen=True, slots=True)
class Best:
    """The best ratio. Fields are as in Allocation; `met` (jobs,) are the needs that are met (if `in_time`)."""

    times: Floats
    together: Floats
    shares: Floats
    met: Floats
    certificate: Certificate
    in_time: bool


class Ratios:
    """Finds ratios of one problem for different needs, each time starting from the last answer."""

    def __init__(
        self, problem: Problem, *, until: TimeLimit | None = None, same: float = SAME, central: bool = False
    ) -> None:
        self.problem, self.same, self._central = problem, same, central
        self.layout = columns(problem)
        self._fastest = fastest(self.layout)
        self.until = TimeLimit() if until is None else until
        self._before: tuple[Curves, Any] | None = None

    def best(self, needs: Needs, floor: Floats) -> Best:
        """The best ratio. When the time is up: the result of the last program, if there is one, else raises OutOfTime.
        Raises Contradiction if the limits cannot all be kept."""
        problem, layout, both = self.problem, self.layout, WithFloor(needs, floor)
        first = z = needs.reached(self._fastest)  # no z is better than with every job in its fastest way all the time
        at, slope = both.at(z), both.slope(z)
        asking, basis = self._conditions(at, slope, floor)
        program = _Build(layout, asking, (needs.rising, abs(first) or 1.0, first))
        found: Solution | None = None
        for _ in range(NEWTON_STEPS):
            at = both.at(z)
            slope = asking.slope(at, both.slope(z))
            free = np.zeros(layout.singles + layout.pairs)
            linear = program.linear(asking.asked(at) - slope * z, slope, free)
            try:
                found = _solved(linear, layout, basis, self._central, self.until)
            except OutOfTime:
                if found is None:
                    raise
                in_time = False
                break
            in_time = found.in_time
            basis, before, z = found.basis, z, float(found.x[-1]) * program.scale
            if abs(z - before) <= self.same * abs(z) or (both.linear and not asking.above.any()):
                break
        assert found is not None
        self._before = (asking, basis)
        multipliers = program.multipliers(found, 1.0)
        bound = bound_of_ratio(layout, asking, both, multipliers, first)
        times, together = layout.unflat(found.x)
        met = both.at(z)
        shares = split(problem, times, met)
        value = needs.reached(rates(problem, shares, together))
        per_z = abs(float(multipliers.weights @ asking.slope(both.at(bound), both.slope(bound)))) or 1.0
        certificate = Certificate(value, bound, multipliers.prices / per_z, multipliers.weights / per_z)
        return Best(times, together, shares, met, certificate, in_time)

    def weights_of(self, certificate: Certificate) -> Floats:
        """(jobs,): the weight of each job's class in the last certificate."""
        assert self._before is not None
        of = self._before[0].of
        found = np.zeros(len(self.problem.rate))
        np.add.at(found, of, certificate.weights)
        return np.asarray(found[self.problem.class_of])

    def _conditions(self, at: Floats, slope: Floats, floor: Floats) -> tuple[Curves, Any]:
        """(the conditions, the basis of the last solution if its conditions were the same, else None). Floors that
        differ count even where the needs `at` the first z are above them."""
        equal = all(_equal(self.problem, each) for each in (at, slope, floor))
        found = curves(self.problem, equal=equal, asking=np.abs(at) + np.abs(slope))
        if self._before is not None:
            same, basis = self._before
            if np.array_equal(same.of, found.of) and np.array_equal(same.above, found.above):
                return same, basis
        return found, None


def fastest(layout: Columns) -> Floats:
    """(jobs,): the rate of each job in its fastest way."""
    problem = layout.problem
    best = problem.rate.max(axis=1)
    if problem.pairs is not None:
        np.maximum.at(best, problem.pairs.first, problem.pairs.rate_first)
        np.maximum.at(best, problem.pairs.second, problem.pairs.rate_second)
    found: Floats = best[problem.class_of]
    return found


def _equal(problem: Problem, needs: Floats) -> bool:
    """Whether the jobs of each class need the same."""
    low, high = np.full(len(problem.rate), np.inf), np.full(len(problem.rate), -np.inf)
    np.minimum.at(low, problem.class_of, needs)
    np.maximum.at(high, problem.class_of, needs)
    filled = np.isfinite(low)
    return bool((low[filled] == high[filled]).all())


def _as_limit(problem: Problem, term: Total, value: float) -> Limits:
    """The limit that makes later terms keep the optimum `value` of `term`."""
    sign = -1.0 if term.most else 1.0
    scale = float(np.abs(term.value).max(initial=0.0)) or 1.0
    pairs = None if problem.pairs is None else np.zeros(len(problem.pairs.way))
    if pairs is not None and term.of_pairs is not None:
        pairs = sign * term.of_pairs / scale
    most = np.array([(sign * value + SLACK * abs(value)) / scale])
    return Limits(("an earlier optimum",), most, np.zeros((1, 1), dtype=np.int64), sign * term.value / scale, pairs)


@dataclass(frozen=True, slots=True)
class _Build:
    """A linear program: the columns of `layout`, and one more for z (in units of `scale`) if there is one.

    Each condition is divided by the most that its class can do, so that all rows are of similar size. If `asked` is so
    small a part of that that the solver would not see it, the condition is divided by less.
    """

    layout: Columns
    conditions: Curves
    z: tuple[bool, float, float] | None
    """(whether z is to be large, the scale of z, a known bound); None if the program has no z."""
    asked: Floats | None = None
    """(conditions,): the right sides, if they do not depend on z."""

    @property
    def scale(self) -> float:
        """The unit of the column of z."""
        return 1.0 if self.z is None else self.z[1]

    def linear(self, asked: Floats, slope: Floats, cost: Floats) -> Linear:
        """The linear program, with the conditions: left side - `slope` x z >= `asked` (conditions,)."""
        problem, layout = self.layout.problem, self.layout
        shared, left, sizes = layout.rows, conditions(layout, self.conditions), self._sizes()
        rows = len(problem.rate) + len(problem.most)
        cells = [
            (shared.row, shared.column, shared.value),
            (left.row + rows, left.column, left.value / sizes[left.row]),
        ]
        floor, ceiling = np.zeros(len(cost)), np.full(len(cost), np.inf)
        if self.z is not None:
            most, scale, bound = self.z
            number = np.arange(len(slope))
            cells.append((number + rows, np.full(len(slope), len(cost)), -slope * scale / sizes))
            cost = np.append(cost, -1.0 if most else 1.0)
            floor = np.append(floor, -np.inf if most else bound / scale)
            ceiling = np.append(ceiling, bound / scale if most else np.inf)
        row, column, value = (np.concatenate(each) for each in zip(*cells, strict=True))
        lower = np.concatenate([np.full(rows, -np.inf), asked / sizes])
        upper = np.concatenate([problem.count, problem.most, np.full(len(asked), np.inf)])
        return Linear(cost, floor, ceiling, lower, upper, row, column, value)

    def multipliers(self, found: Solution, scale: float) -> Multipliers:
        """The solver's dual values, each clipped to its valid side of zero."""
        classes, rows = len(self.layout.problem.rate), len(self.layout.problem.most)
        prices = np.maximum(-found.dual[classes : classes + rows], 0.0) * scale
        weights = np.maximum(found.dual[classes + rows :], 0.0) * scale / self._sizes()
        return Multipliers(prices, weights, np.maximum(-found.dual[:classes], 0.0) * scale)

    def _sizes(self) -> Floats:
        problem, of = self.layout.problem, self.conditions.of
        best = np.zeros(len(problem.rate))
        np.maximum.at(best, problem.class_of, fastest(self.layout))
        sizes: Floats = best[of] * problem.count[of]
        sizes = np.where(sizes > 0, sizes, 1.0)
        if self.asked is None:
            return sizes
        little = (self.asked > 0) & (self.asked < VISIBLE * sizes)
        return np.where(little, self.asked / VISIBLE, sizes)
