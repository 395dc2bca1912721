"""Makespan of jobs in an order: the last job ends as early as possible, though some jobs can only start after others.

    min T   with   sum_k rate_mk t_mk >= steps_m   and, of every limit, at most T times as much as there is at a time,
                   sum of (start_m + sum_k t_mk) <= T over the jobs m of each chain, also of one job

t_mk is the time that job m spends in way k. Jobs of a chain do not overlap, and no plan uses
more of a limit than there is, so no real plan ends sooner than T: it is a bound. It can be too low, because machines
that a job needs may not be free when the jobs before it end. The course (course.py) says when the last job does end.

There can be very many chains. The program begins with the longest, and gets others when an answer gives their jobs too
much time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.errors import LimitError
from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.engine import solve
from orchestrator.policy.groups.needs import Finishing
from orchestrator.policy.groups.order import Before, Chain, longest_chains
from orchestrator.policy.groups.policies.cost import of_time
from orchestrator.policy.groups.problem import Floats, Limits
from orchestrator.policy.groups.program import Allocation, Program, Ratio
from orchestrator.policy.groups.time_limit import TimeLimit

ROUNDS = 20
"""The most programs that are solved."""
TOO_LONG = 1e-6
"""A chain may take this much more, relatively, than there is: the tolerance of the solver."""


def makespan_in_order(jobs: Collection, before: Before, begins_s: Floats, until: TimeLimit) -> Allocation:
    """The answer: the parts of T that each job spends in each way. `begins_s` (jobs,): the least time of each start.

    The first certificate is about T, with the starts of each chain. Raises LimitError if no answer is found in time.
    """
    fastest_s = jobs.steps / jobs.rate.max(axis=1)
    begins_s = np.where(jobs.steps > 0, begins_s, 0.0)
    tried_s = max(took for took, _ in longest_chains(before, begins_s + fastest_s).values())
    chains = _longest(before, begins_s + fastest_s, tried_s / 2)
    found: Allocation | None = None
    tried: tuple[float, float] | None = None
    for _ in range(ROUNDS):
        # The longer T is taken to be, the more time the starts leave, and the sooner the jobs can end by the answer.
        # So neither T nor the answer is a bound, but the lower of the two is.
        most = [max(1 - float(begins_s[list(chain)].sum()) / tried_s, 0.0) for chain in chains]
        program = _program(jobs, chains, most)
        try:
            answer = solve(program, until=until)
        except LimitError:
            if found is None:
                raise
            return replace(found, in_time=False)
        first = answer.certificates[0]
        bound_s = min(first.bound, tried_s)
        if found is not None:
            bound_s = max(bound_s, found.certificates[0].bound)
        value_s = max(first.value, bound_s)
        found = replace(answer, certificates=(replace(first, value=value_s, bound=bound_s), *answer.certificates[1:]))
        if value_s <= 0:  # no job has anything left to do
            break
        ran = answer.shares.sum(axis=1)
        more = [each for each in _longest(before, begins_s / value_s + ran, 1 + TOO_LONG) if each not in chains]
        if not more and abs(first.value - tried_s) <= TOO_LONG * tried_s:
            break
        chains += more
        tried, before_s = (tried_s, first.value), tried
        tried_s = _meeting(tried, before_s)
    assert found is not None
    return found


def _meeting(now: tuple[float, float], before: tuple[float, float] | None) -> float:
    """The T to try next: where a line through two pairs of (T tried, T of the answer) says that both are equal."""
    (tried_s, answer_s), low_s, high_s = now, min(now), max(now)
    if before is not None and before[0] != tried_s:
        slope = (answer_s - before[1]) / (tried_s - before[0])
        if slope < 1 and low_s <= (meets_s := (answer_s - slope * tried_s) / (1 - slope)) <= high_s:
            return meets_s
    return answer_s


def _longest(before: Before, takes: Floats, over: float) -> list[Chain]:
    """The longest chains that take more than `over`."""
    return [chain for took, chain in longest_chains(before, takes).values() if took > over]


def _program(jobs: Collection, chains: Sequence[Chain], most: Sequence[float]) -> Program:
    """The program with these chains; `most`: the part of the time that all jobs of a chain can train together. Among
    equally good plans, the cheapest."""
    ordered = np.full(len(jobs), -1.0)
    for chain in chains:
        ordered[list(chain)] = chain
    problem, _ = problem_of(jobs, apart=ordered)
    for chain, part in zip(chains, most, strict=True):
        at = np.full((len(problem.rate), 1), -1)
        at[problem.class_of[list(chain)]] = 0
        problem = problem.and_limits(Limits(("a chain of jobs",), np.array([part]), at, np.ones((1, 1))))
    needs = Finishing(jobs.steps, np.zeros(len(jobs)), np.ones(len(jobs)))
    return Program(problem, (Ratio(needs), of_time(problem)))
