"""Policies that maximize the sum of throughputs: as it is, per dollar, or within a budget.

Total throughput:        max sum_m rate_m
Throughput per dollar:   max sum_m sum_k rate_mk / price_k x_mk     (what Gavel calls "cost"; it does not minimize cost)
Progress in a budget:    max sum_m weight_m rate_m / fastest_m,  with  sum cost <= budget

Source of the first two: Gavel (OSDI 2020), section 4.3. Of these programs, only `throughput_per_dollar_on_time` meets
deadlines; planning.py adds them to any policy.
"""

from __future__ import annotations

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.policies.cost import fast_enough, on_time
from orchestrator.policy.groups.problem import Floats, Problem
from orchestrator.policy.groups.program import Program, Total


def total_throughput(jobs: Collection) -> Program:
    """The program that maximizes the steps per second of all jobs together."""
    return _most(jobs, np.ones(jobs.rate.shape))


def throughput_per_dollar(jobs: Collection) -> Program:
    """The program that maximizes steps per second, each divided by the price of a GPU (dollars per hour). Raises
    InfeasibleError if a GPU costs nothing."""
    return _most(jobs, _per_dollar(jobs))


def throughput_per_dollar_on_time(jobs: Collection) -> Program:
    """As `throughput_per_dollar`, with every job fast enough to meet its deadline. Raises InfeasibleError if a job
    cannot be."""
    need = on_time(jobs)
    fast_enough(jobs, need)
    return _most(jobs, _per_dollar(jobs), need)


def progress(jobs: Collection) -> Program:
    """The program that maximizes the weighted sum of progress, each job's relative to its fastest way. The budgets of
    the collection limit it."""
    per_step = jobs.weight / jobs.rate.max(axis=1)
    return _most(jobs, np.broadcast_to(per_step[:, None], jobs.rate.shape))


def _per_dollar(jobs: Collection) -> Floats:
    if not (jobs.supply.usd_per_h > 0).all():
        way = int(np.argmin(jobs.supply.usd_per_h))
        raise InfeasibleError(
            f"throughput per dollar needs a price for every kind of machine, but number {way + 1} has none",
            hint="set its price, or choose a policy that does not need prices",
        )
    return np.broadcast_to(1 / jobs.supply.usd_per_h, jobs.rate.shape)


def _most(jobs: Collection, per_step: Floats, at_least: Floats | None = None) -> Program:
    """The program that maximizes the worth of all steps. `per_step` (jobs, ways): what a step of each job is worth."""
    problem, first = problem_of(jobs, apart=per_step, needing=at_least)
    return Program(problem, (of_steps(problem, per_step[first]),), at_least)


def of_steps(problem: Problem, per_step: Floats) -> Total:
    """The term that maximizes the total of `per_step` (classes, ways) over the steps that are done."""
    pairs = problem.pairs
    if pairs is None:
        return Total(per_step * problem.rate, most=True)
    first, second = per_step[pairs.first, pairs.way], per_step[pairs.second, pairs.way]
    together = pairs.rate_first * first + pairs.rate_second * second
    return Total(per_step * problem.rate, most=True, of_pairs=together)
