"""First in, first out, and shortest job first: each job's progress counts more than that of the jobs behind it.

    max sum_m (n - position_m) rate_m / fastest_m

position_m is 0 for the first of n jobs: the one that arrived first, or the one that takes the least time in its fastest
way. Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

import numpy as np

from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.policies.throughput import of_steps
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Program


def first_in_first_out(jobs: Collection) -> Program:
    """The program for jobs ordered by age, oldest first; jobs of the same age in the order of the rows."""
    return _in_order(jobs, -jobs.age_s)


def shortest_first(jobs: Collection) -> Program:
    """The program for jobs ordered by the time that each takes in its fastest way, shortest first."""
    return _in_order(jobs, jobs.steps / jobs.rate.max(axis=1))


def _in_order(jobs: Collection, key: Floats) -> Program:
    position = np.empty(len(jobs))
    position[np.argsort(key, kind="stable")] = np.arange(len(jobs))
    per_step = (len(jobs) - position) / jobs.rate.max(axis=1)
    problem, first = problem_of(jobs, apart=per_step)
    return Program(problem, (of_steps(problem, np.broadcast_to(per_step[first][:, None], problem.rate.shape)),))
