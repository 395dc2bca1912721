"""Policies about when jobs end: makespan and finish-time fairness.

Makespan:               min max_m  after_m + steps_m / rate_m
Finish-time fairness:   min max_m  (age_m + steps_m / rate_m) / (alone so far_m + steps_m / alone_m)

after_m is how long the jobs take that can only start when job m has ended (Collection.after_s). alone_m is the rate
with an equal part of everything. Sources: Gavel (OSDI 2020), section 4.2; Themis (Mahajan et al., NSDI 2020), section
3. Both are solved exactly, without a bisection.
"""

from __future__ import annotations

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.needs import Finishing
from orchestrator.policy.groups.program import Program, Ratio


def makespan(jobs: Collection) -> Program:
    """The program that minimizes the time (s) until the last job ends, and what comes after it."""
    after_s = np.zeros(len(jobs)) if jobs.after_s is None else jobs.after_s
    problem, _ = problem_of(jobs, needing=np.column_stack([jobs.steps, after_s]))
    return Program(problem, (Ratio(Finishing(jobs.steps, after_s, np.ones(len(jobs)))),))


def finish_time_fairness(jobs: Collection) -> Program:
    """The program that minimizes the largest slowdown of a job, compared with an equal part of everything.

    Raises InfeasibleError for a job that would never finish with an equal part of everything.
    """
    rate = alone(jobs)
    if not (rate > 0).all():
        raise InfeasibleError(
            f"job {int(np.argmin(rate))} cannot run: there are no machines of any kind that it can use",
            hint="leave the job out, or add machines that it can use",
        )
    alone_s = jobs.alone_s + jobs.steps / rate
    problem, _ = problem_of(jobs, needing=np.column_stack([jobs.steps, jobs.age_s, alone_s]))
    return Program(problem, (Ratio(Finishing(jobs.steps, jobs.age_s, alone_s)),))
