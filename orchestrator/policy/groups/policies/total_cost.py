"""Least total cost: the jobs cost as little as possible until they are done, and every job is on time.

    min  sum_m window_m sum_k cost_mk x_mk     with  rate_m >= steps_m / window_m,
         cost_mk = price_k gpus_m (1 + start_mk rate_mk / steps_m)

A job runs within its window: from now to its deadline, or if it has none, to a common horizon. x_mk is the part of its
window that it spends in way k. So a job that runs for longer counts for more, unlike in cost.py, which minimizes
dollars per hour. If a job has to start in a way (`start`, in seconds), the start is paid in proportion to the steps
done there. A whole start in each of its ways would cost more, so the bound is valid for that, too.

The horizon is the time within which every job without a deadline can run where it costs least: nothing is rented only
to finish sooner. Within a window, a job's part of the time is assumed to be constant. If windows differ and a limit
binds, jobs that take turns can cost less: see in_turns.py.
"""

from __future__ import annotations

import numpy as np

from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.policies.cost import fast_enough
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Program, Total

SOON_S = 1.0
"""The shortest window, in seconds."""
ROUNDING = 1e-6
"""The relative margin of the horizon, so that rounding errors do not raise the cost."""


def least_total_cost(jobs: Collection, horizon_s: float) -> Program:
    """The program of least total cost; its value is in US dollars. Raises InfeasibleError for a job that no way runs
    fast enough."""
    window_s = np.maximum(np.where(np.isfinite(jobs.deadline_s), jobs.deadline_s, horizon_s), SOON_S)
    need = jobs.steps / window_s
    fast_enough(jobs, need)
    problem, first = problem_of(jobs, apart=window_s, needing=need, usd_per_h=jobs.usd_per_h_started)
    hours = window_s[first] / 3600
    return Program(problem, (Total(problem.cost * hours[:, None], most=False),), need)


def patient_horizon_s(jobs: Collection) -> float:
    """The horizon (seconds): within it, every job without a deadline can run where it costs least, in spite of the
    quotas."""
    took_s = cheapest_s(jobs, jobs.steps, jobs.usd_per_h_started)
    waits = ~np.isfinite(jobs.deadline_s)
    longest_s = float(took_s[waits].sum(axis=1).max(initial=0.0))
    due_s = np.maximum(jobs.deadline_s[~waits], SOON_S)
    for quota in jobs.quotas:
        each = np.ones(len(quota.ways)) if quota.each is None else quota.each
        used = (took_s[:, quota.ways] * each).sum(axis=1) * jobs.gpus  # unit seconds
        free = quota.most - float((used[~waits] / due_s).sum())
        wanted = float(used[waits].sum())
        afterwards_s = float(due_s.max(initial=0.0)) + wanted / max(quota.most, 1e-9)
        longest_s = max(longest_s, min(wanted / free, afterwards_s) if free > 0 else afterwards_s)
    return max(longest_s * (1 + ROUNDING), SOON_S)


def cheapest_s(jobs: Collection, steps: Floats, usd_per_h: Floats) -> Floats:
    """(jobs, ways): the seconds that so many `steps` (jobs,) take in the way where a job costs least, at these prices
    (jobs, ways), in the column of that way; 0 elsewhere. If no limit has room for all its machines, any way counts: a
    job can run in one whose limit has become smaller."""
    able = jobs.rate > 0
    fits = able.copy()
    for ways, each, most in jobs.limits:
        fits[:, ways] &= jobs.gpus[:, None] * each <= most
    fits = np.where(fits.any(axis=1, keepdims=True), fits, able)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.argmin(np.where(fits, usd_per_h / jobs.rate, np.inf), axis=1)
    found, every = np.zeros(jobs.rate.shape), np.arange(len(jobs))
    found[every, best] = steps / jobs.rate[every, best]
    return found
