"""Least cost per hour: the jobs spend as little per hour as possible, and every job is on time.

    min  sum_m sum_k  price_k gpus_m x_mk     with  rate_m >= steps_m / min(deadline_m, horizon)

If no limit binds, each job is decided alone: it gets the way with the lowest price per step that is fast enough, or a
mix of two. Deadlines are never given up all at once: if they cannot all be met, the least work is late (see `late`).
Source: this project. Gavel's cost policy (OSDI 2020, section 4.3) maximizes throughput per dollar instead, and drops
all deadlines if one cannot be met.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.linear import OutOfTime
from orchestrator.policy.groups.problem import Floats, Integers, Problem, with_a_way_out
from orchestrator.policy.groups.program import Program, Total
from orchestrator.policy.groups.time_limit import TimeLimit

HARDLY = 1e-7
"""A job that lacks less than this part of the rate it needs counts as on time."""


def on_time(jobs: Collection) -> Floats:
    """(jobs,): the lowest rate, in steps/s, that meets each deadline; 0 without a deadline, infinite if it has
    passed."""
    left = np.maximum(jobs.deadline_s, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isfinite(left) & (jobs.steps > 0), jobs.steps / left, 0.0)


def least_cost(jobs: Collection, *, horizon_s: float = np.inf) -> Program:
    """The program of least cost per hour. Jobs without a deadline are to end within `horizon_s`; if that is infinite,
    they need not run."""
    need = np.maximum(on_time(jobs), jobs.steps / horizon_s)
    fast_enough(jobs, need)
    problem, _ = problem_of(jobs, needing=need)
    return Program(problem, (of_time(problem),), need)


def of_time(problem: Problem) -> Total:
    """The term that minimizes what the jobs spend per hour. A pair is paid for once."""
    pairs = problem.pairs
    return Total(problem.cost, False, None if pairs is None else problem.cost[pairs.first, pairs.way])


def fast_enough(jobs: Collection, need: Floats) -> None:
    """Raises InfeasibleError if a job could not be on time even on its fastest way, all the time."""
    late = np.flatnonzero(need > jobs.rate.max(axis=1) * (1 + HARDLY))
    if len(late):
        job = int(late[0])
        raise InfeasibleError(
            f"job {job} needs {need[job]:.4g} steps/s to be on time, but no offer runs it faster than "
            f"{jobs.rate[job].max():.4g}" + (f" ({len(late)} jobs are too slow)" if len(late) > 1 else ""),
            hint="set a later deadline for it, or allow faster offers",
        )


@dataclass(frozen=True, slots=True)
class Late:
    """Which jobs cannot all be on time: `jobs` (late,), and how much of the rate that they need is `missing` (late,),
    in steps/s.

    `prices` (limits,): how many jobs' needs, or parts of them, one more unit of each limit would meet.
    """

    jobs: Integers
    missing: Floats
    prices: Floats


def late(jobs: Collection, need: Floats, until: TimeLimit | None = None) -> Late:
    """The solution with the fewest missing steps/s, relative to each job's need, if the limits do not allow `need`
    (jobs,).

    Every job gets an additional way of its own that uses no limit, and these ways are used as little as possible.
    Raises LimitError when the time is up.
    """
    capped = np.minimum(need, jobs.rate.max(axis=1))
    problem, first = problem_of(jobs, apart=capped)
    relaxed = with_a_way_out(problem, capped[first])
    value = np.zeros(relaxed.rate.shape)
    value[:, -1] = capped[first] > 0
    until = TimeLimit() if until is None else until
    found = solve_exactly(Program(relaxed, (Total(value, most=False),), capped), until=until)
    if not found.in_time:
        raise OutOfTime(until)
    missing = found.shares[:, -1] * capped + (need - capped)
    some = np.flatnonzero(missing > HARDLY * capped)  # a need can be infinite
    return Late(some, missing[some], found.certificates[0].prices)
