"""Simulates a group on an elastic market with changing prices and binding quotas: its cost and its late jobs.

Fluid: a job runs on parts of machines, moves in no time and is never interrupted, so only the decision counts
(elastic.py shows the cost of rounds and starts, at constant prices). A decision sees the prices of its hour and no
later ones. It is made at the start, every day, and in each hour after a job ended or missed its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups import Collection, Quota, Supply, collection, solve
from orchestrator.policy.groups.policies.cost import late, least_cost, on_time
from orchestrator.policy.groups.problem import Floats

Decision = Callable[[Collection], Floats]
"""The shares (jobs, ways) of the jobs that have not ended."""
HOUR_S, DAY_H = 3600.0, 24
LATE_S = 1.0
"""Seconds. A job that is late by less counts as on time, because the solver is not more precise."""
HARDLY = 1e-6
"""The fraction of a job's steps, or of a need, that counts as zero."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs submitted together: `rate` (jobs, ways) in steps/s on one machine; `steps` and `deadline_s` (jobs,)."""

    rate: Floats
    steps: Floats
    deadline_s: Floats


@dataclass(frozen=True, slots=True)
class Paid:
    """`usd` for all jobs, `ended_s` (jobs,), `late` jobs, and the number of `decisions`."""

    usd: float
    ended_s: Floats
    late: int
    decisions: int


def played(group: Group, usd_per_h: Floats, quotas: tuple[Quota, ...], decide: Decision) -> Paid:
    """Run until all jobs have ended. `usd_per_h` (hours, ways): prices from the start on; the last ones stay.

    Raises RuntimeError if no remaining job has a share of time, since then none would ever end.
    """
    jobs, ways = group.rate.shape
    left, ended_s = group.steps.astype(float), np.full(jobs, np.inf)
    shares, usd, decisions, hour, changed = np.zeros((jobs, ways)), 0.0, 0, 0, True
    while (going := np.flatnonzero(np.isinf(ended_s))).size:
        now_s, price = hour * HOUR_S, usd_per_h[min(hour, len(usd_per_h) - 1)]
        if changed or hour % DAY_H == 0:
            shares = np.zeros((jobs, ways))
            shares[going] = decide(_waiting(group, going, left, now_s, price, quotas))
            decisions += 1
        speed = (group.rate * shares)[going].sum(axis=1)
        if not speed.any():
            raise RuntimeError(f"none of the {going.size} remaining jobs has a share of time")
        needs_h = np.divide(left[going], speed * HOUR_S, out=np.full(going.size, np.inf), where=speed > 0)
        ends = needs_h <= 1 + HARDLY
        spent_h = np.where(ends, needs_h, 1.0)
        usd += float(spent_h @ (shares[going] @ price))
        left[going] -= speed * HOUR_S * spent_h
        ended_s[going[ends]] = now_s + needs_h[ends] * HOUR_S
        due = (group.deadline_s[going] > now_s) & (group.deadline_s[going] <= now_s + HOUR_S)
        changed = bool((ends | due).any())
        hour += 1
    return Paid(usd, ended_s, int((ended_s > group.deadline_s + LATE_S).sum()), decisions)


def _waiting(
    group: Group, going: np.ndarray, left: Floats, now_s: float, price: Floats, quotas: tuple[Quota, ...]
) -> Collection:
    """The collection at the time of a decision. A job that no plan can finish on time gets the earliest deadline that
    it can still meet."""
    rate = group.rate[going]
    least_s = left[going] / rate.max(axis=1)
    deadline_s = np.maximum(group.deadline_s[going] - now_s, least_s)
    supply = Supply(np.full(len(price), np.inf), price)
    return collection(rate, supply, steps=left[going], deadline_s=deadline_s, quotas=quotas)


def together(jobs: Collection) -> Floats:
    """The joint plan of least cost; if not all jobs can be on time, the plan with the least late work."""
    try:
        return solve(least_cost(jobs)).shares
    except InfeasibleError:
        need = on_time(jobs)
        short = late(jobs, need)
        met = need[short.jobs] - short.missing
        need[short.jobs] = np.where(met > HARDLY * need[short.jobs], met, 0.0)
        with np.errstate(divide="ignore"):
            deadline_s = jobs.steps / (need * (1 - HARDLY))
        return solve(least_cost(replace(jobs, deadline_s=deadline_s))).shares


def one_by_one(jobs: Collection) -> Floats:
    """Each job alone, in the order of the rows: its own least cost within the quotas that earlier jobs leave."""
    shares = together(replace(jobs, quotas=()))  # without quotas, each is alone in the joint plan
    left = np.array([each.most for each in jobs.quotas])
    covers = np.array([np.isin(np.arange(jobs.rate.shape[1]), each.ways) for each in jobs.quotas])
    for row in range(len(jobs) if jobs.quotas else 0):
        if (covers @ shares[row] * jobs.gpus[row] > left).any():
            shares[row] = together(_only(jobs, row, left))[0]
        left = np.maximum(left - covers @ shares[row] * jobs.gpus[row], 0.0)
    return shares


def _only(jobs: Collection, row: int, left: Floats) -> Collection:
    """One job with this part of the quotas."""
    quotas = tuple(replace(each, most=float(most)) for each, most in zip(jobs.quotas, left, strict=True))
    one = slice(row, row + 1)
    return collection(
        jobs.rate[one],
        jobs.supply,
        gpus=jobs.gpus[one],
        steps=jobs.steps[one],
        deadline_s=jobs.deadline_s[one],
        quotas=quotas,
    )


def agnostic(jobs: Collection) -> Floats:
    """The joint plan under the assumption that each job runs everywhere at its slowest speed, so it never counts on
    more than it gets."""
    able = jobs.rate > 0
    slowest = np.where(able, jobs.rate, np.inf).min(axis=1, keepdims=True)
    return together(replace(jobs, rate=np.where(able, slowest, 0.0)))


def on_the_fastest(jobs: Collection) -> Floats:
    """The joint plan that allows each job only its fastest ways."""
    fastest = jobs.rate.max(axis=1, keepdims=True)
    return together(replace(jobs, rate=np.where(jobs.rate == fastest, jobs.rate, 0.0)))
