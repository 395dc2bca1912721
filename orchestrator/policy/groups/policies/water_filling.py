"""Water filling: repeats max-min fairness for the jobs that can still get more.

All ratios are raised together. When some jobs can get no more, theirs are fixed, and the others are raised further. The
result is the lexicographic maximum: the smallest ratio is as large as possible, then the next, and so on. Jobs that
cannot get more are those with a positive weight in the certificate (complementary slackness), so no integer program is
needed to find them. Sources: Gavel (OSDI 2020), section 4.3; Radunovic and Le Boudec, "A Unified Framework for Max-Min
and Min-Max Fairness", IEEE/ACM ToN 15 (2007).

Hierarchical: each entity (an organization, a team) is entitled to its weight. It is shared by the entity's jobs that
can still get more: in proportion to their weights, or all of it for the first job (fifo).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.exact import Ratios, fastest, rates
from orchestrator.policy.groups.linear import OutOfTime
from orchestrator.policy.groups.needs import Proportional
from orchestrator.policy.groups.policies.fairness import units
from orchestrator.policy.groups.problem import Floats, Integers, Problem
from orchestrator.policy.groups.program import Allocation, Certificate
from orchestrator.policy.groups.time_limit import TimeLimit

Flags = NDArray[np.bool_]

BINDS = 1e-9
"""A job with more than this part of all the weight in the certificate cannot get more."""


@dataclass(frozen=True, slots=True)
class Entities:
    """`of` (jobs,): the entity of each job; `weight` (entities,); `inside`: how each entity shares among its jobs."""

    of: Integers
    weight: Floats
    inside: tuple[Literal["fairness", "fifo"], ...]


def water_filling(jobs: Collection, *, until: TimeLimit | None = None) -> Allocation:
    """The lexicographic maximum, with one certificate for each level, given the levels below it."""
    problem, first = problem_of(jobs, apart=units(jobs))
    unit = units(jobs)[first]
    found = _fill(Ratios(_classes(problem), until=until), lambda more: np.where(more, unit, 0.0))
    return _of_jobs(problem, found)


def hierarchical(jobs: Collection, entities: Entities, *, until: TimeLimit | None = None) -> Allocation:
    """Water filling in which entities share by their weights, and the jobs of each entity as it says (`inside`)."""
    position = _position(jobs)
    lined_up = np.array([each == "fifo" for each in entities.inside])[entities.of]
    columns = np.column_stack([units(jobs), entities.of, np.where(lined_up, position, -1.0)])
    problem, first = problem_of(jobs, apart=columns)
    unit, weight, of = units(jobs)[first], jobs.weight[first], entities.of[first]
    ahead_of, in_line = position[first], lined_up[first]
    count = problem.count

    def units_of(more: Flags) -> Floats:
        ahead = np.full(len(entities.weight), np.inf)
        np.minimum.at(ahead, of[more], ahead_of[more])
        raised = more & (~in_line | (ahead_of == ahead[of]))
        among = np.bincount(of, weight * count * raised, minlength=len(entities.weight))
        return np.where(raised, entities.weight[of] * unit / np.where(raised, among[of], 1.0), 0.0)

    return _of_jobs(problem, _fill(Ratios(_classes(problem), until=until), units_of))


def _classes(problem: Problem) -> Problem:
    """The same problem with one job for each class that stands for all of its jobs, because they need the same."""
    return replace(problem, class_of=np.arange(len(problem.rate)), copies=problem.count)


def _of_jobs(problem: Problem, found: Allocation) -> Allocation:
    return replace(found, shares=found.shares[problem.class_of], rates=found.rates[problem.class_of])


def _fill(ratios: Ratios, units_of: Callable[[Flags], Floats]) -> Allocation:
    """The lexicographic maximum. `units_of` maps which jobs can still get more (jobs,) to how fast to raise each
    (jobs,)."""
    problem, fast = ratios.problem, fastest(ratios.layout)
    rate, more = np.zeros(problem.jobs), np.ones(problem.jobs, dtype=bool)
    certificates: list[Certificate] = []
    while more.any():
        unit = units_of(more)
        best = ratios.best(Proportional(unit, rate), np.zeros(problem.jobs))
        if not best.in_time:
            raise OutOfTime(ratios.until)
        rate, certificate = best.met, best.certificate
        certificates.append(certificate)
        raised = unit > 0
        binding = raised & (ratios.weights_of(certificate) * unit > BINDS)
        ended = raised & (rate >= fast * (1 - BINDS))
        more &= ~(binding | ended)
        if not (binding | ended).any():
            break  # the solver says that more is possible but finds none, because of its tolerance
    reached = rates(problem, best.shares, best.together)
    return Allocation(best.times, best.together, best.shares, reached, tuple(certificates))


def _position(jobs: Collection) -> Floats:
    position = np.empty(len(jobs))
    position[np.argsort(-jobs.age_s, kind="stable")] = np.arange(len(jobs))
    return position
