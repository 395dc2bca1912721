"""Gavel's policies for a shared cluster as its own simulator solves them (stanford-futuredata/gavel at c4fa400), faults
included. Policies that this product also has come from the product; the others are here, because no user would want
them.

- `fifo`, meant to draw a type for each job, gives every job the last type that it examined.
- `fifo_perf` skips a job that cannot run on the types with free GPUs.
- All deadlines are dropped while they cannot all be met, and each one once it has passed.
- AlloX plans the whole queue for the least mean completion time, and keeps only the jobs that begin now, permanently.
- Finish-time fairness without speeds treats every type as a V100, even if a job cannot run there.

In the last two, each job is a separate class: among many best answers, Gavel's is in their middle, which divides
nothing between equal jobs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from orchestrator.arena.cluster_policies import POLICIES
from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups import Collection, Program, solve
from orchestrator.policy.groups.collection import problem_of
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.needs import Finishing
from orchestrator.policy.groups.policies.cost import fast_enough, on_time
from orchestrator.policy.groups.policies.throughput import of_steps, throughput_per_dollar
from orchestrator.policy.groups.problem import Floats, Integers, Problem
from orchestrator.policy.groups.program import Ratio

SEED = 0
NEVER = 1e-10
"""Steps/s that AlloX assumes for a job on a type where it cannot run."""
Policy = Callable[[Collection, Integers], Floats]
"""Shares (jobs, types) of a cluster's time, for jobs and their permanent numbers (jobs,)."""
OURS = {
    "finish_time_fairness_perf": "finish-time-fairness",
    "max_min_fairness": "max-min-fairness-agnostic",
    "max_min_fairness_perf": "max-min-fairness",
    "max_min_fairness_water_filling_perf": "water-filling",
    "max_sum_throughput_normalized_by_cost_perf": "throughput-per-dollar",
    "max_sum_throughput_perf": "max-throughput",
    "min_total_duration": "makespan-agnostic",
    "min_total_duration_perf": "makespan",
}
"""Policies of orchestrator.arena.cluster_policies by Gavel's names."""


def policy(name: str) -> Policy:
    """A policy by Gavel's name."""
    if name in REMEMBERING:
        return REMEMBERING[name]()
    shares = POLICIES[OURS[name]].shares if name in OURS else OTHERS[name]
    return lambda jobs, _names: shares(jobs)


def as_fast_as_the_first(jobs: Collection) -> Collection:
    """Jobs in the view of a policy that treats every type as equally fast as the first, even if a job cannot run
    there."""
    return replace(jobs, rate=np.broadcast_to(jobs.rate[:, :1], jobs.rate.shape))


def _finish_time_fairness(jobs: Collection) -> Floats:
    jobs = as_fast_as_the_first(jobs)
    alone_s = jobs.alone_s + jobs.steps / alone(jobs)
    problem, _ = _one_by_one(jobs)
    return solve(Program(problem, (Ratio(Finishing(jobs.steps, jobs.age_s, alone_s)),)), central=True).shares


def _isolated(jobs: Collection) -> Floats:
    """An equal part of every type for each job."""
    part = jobs.supply.gpus / len(jobs) / jobs.gpus[:, None]
    return np.asarray(part / np.maximum(part.sum(axis=1, keepdims=True), 1))


def _with_deadlines(jobs: Collection) -> Floats:
    """The most throughput per dollar with all deadlines, or with none if they cannot all be met."""
    need = on_time(jobs)
    problem, first = _one_by_one(jobs)
    value = of_steps(problem, np.broadcast_to(1 / jobs.supply.usd_per_h, jobs.rate.shape)[first])
    try:
        fast_enough(jobs, need)
        return solve(Program(problem, (value,), need), central=True).shares
    except InfeasibleError:
        return solve(throughput_per_dollar(jobs), central=True).shares


def _one_by_one(jobs: Collection) -> tuple[Problem, Integers]:
    return problem_of(jobs, apart=np.arange(len(jobs), dtype=float))


def _in_line(jobs: Collection) -> Floats:
    """Gavel's `fifo_perf`: the order of arrival, each job on the fastest type with free GPUs. A job that cannot run on
    those types is skipped, and others overtake it."""
    found, free = np.zeros(jobs.rate.shape), jobs.supply.gpus.copy()
    for job in range(len(jobs)):
        room = free >= jobs.gpus[job]
        if not room.any():
            break
        kind = int(np.argmax(np.where(room, jobs.rate[job], -1.0)))
        if jobs.rate[job, kind] > 0:
            found[job, kind] = 1.0
            free[kind] -= jobs.gpus[job]
    return found


class _Drawn:
    """Gavel's `fifo`: the order of arrival, with a permanent type. The draw only decides which type counts as full."""

    def __init__(self) -> None:
        self._chance, self._type_of = random.Random(SEED), dict[int, int]()

    def __call__(self, jobs: Collection, names: Integers) -> Floats:
        rate = dict(zip(names.tolist(), jobs.rate, strict=True))
        takes = dict(zip(names.tolist(), jobs.gpus.tolist(), strict=True))
        free, line = jobs.supply.gpus.tolist(), [job for job in takes if job not in self._type_of]

        def give(job: int, kind: int) -> None:
            self._type_of[job] = kind
            free[kind] -= takes[job]

        for job, kind in sorted(self._type_of.items()):
            if job in takes:
                free[kind] -= takes[job]
                continue
            del self._type_of[job]
            if line and takes[line[0]] <= free[kind] and rate[line[0]][kind] > 0:
                give(line.pop(0), kind)
        types = [kind for kind in reversed(range(len(free))) if free[kind] > 0]
        while line and types:
            job = line.pop(0)
            fits = [place for place, kind in enumerate(types) if free[kind] >= takes[job]]
            if not fits:
                break
            drawn, last = fits[self._chance.randrange(len(fits))], types[-1]
            if rate[job][last] > 0:
                give(job, last)
                if free[last] == 0:
                    types.pop(drawn)
        found = np.zeros(jobs.rate.shape)
        for number, job in enumerate(takes):
            if job in self._type_of:
                found[number, self._type_of[job]] = 1.0
        return found


class _Planned:
    """Gavel's `allox`, for jobs of one GPU each: a started job keeps its GPU. The others are assigned to turns on the
    free GPUs; the last turn delays only its own job, the one before it two jobs, and so on. The first turns begin.
    """

    def __init__(self) -> None:
        self._type_of = dict[int, int]()

    def __call__(self, jobs: Collection, names: Integers) -> Floats:
        kinds = reversed(range(len(jobs.supply.gpus)))
        began = [self._type_of[name] for name in names.tolist() if name in self._type_of]
        free = [kind for kind in kinds for _ in range(int(jobs.supply.gpus[kind]) - began.count(kind))]
        waiting = [number for number, name in enumerate(names.tolist()) if name not in self._type_of]
        if free and waiting:
            time_s = jobs.steps[waiting, None] / np.maximum(jobs.rate[np.ix_(waiting, free)], NEVER)
            turns = np.arange(1, len(waiting) + 1)[None, :, None]
            cost = turns * time_s[:, None] + jobs.age_s[waiting][:, None, None]
            turn, gpu = np.divmod(assignment(cost.reshape(len(waiting), -1)), len(free))
            for number, kind in enumerate(free):
                on = np.flatnonzero(gpu == number)
                if len(on):
                    self._type_of[int(names[waiting[on[np.argmax(turn[on])]]])] = kind
        found = np.zeros(jobs.rate.shape)
        for number, name in enumerate(names.tolist()):
            if name in self._type_of:
                found[number, self._type_of[name]] = 1.0
        return found


def assignment(cost: Floats) -> Integers:
    """(rows,): a different column for each row, such that the sum of `cost` (rows, columns) is least.

    Shortest augmenting paths (Crouse, "On implementing 2D rectangular assignment algorithms", IEEE Transactions on
    Aerospace and Electronic Systems 52(4), 2016). Among equally good answers, it gives the same one as SciPy.
    """
    rows, columns = cost.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns)
    column_of, row_of = np.full(rows, -1), np.full(columns, -1)
    for added in range(rows):
        row, reached = added, 0.0
        least, before = np.full(columns, np.inf), np.full(columns, -1)
        rest, seen = np.arange(columns)[::-1].copy(), list[int]()
        while True:
            through = reached + cost[row, rest] - of_row[row] - of_column[rest]
            nearer = rest[through < least[rest]]
            least[nearer], before[nearer] = through[through < least[rest]], row
            at = np.flatnonzero(least[rest] == least[rest].min())
            ends = at[row_of[rest[at]] < 0]
            place = int(ends[-1] if len(ends) else at[0])
            column = int(rest[place])
            reached = float(least[column])
            seen.append(column)
            rest[place] = rest[-1]
            rest = rest[:-1]
            if row_of[column] < 0:
                break
            row = int(row_of[column])
        of_row[added] += reached
        passed = np.array(seen[:-1], dtype=np.int64)
        of_row[row_of[passed]] += reached - least[passed]
        of_column[seen] -= reached - least[seen]
        while True:
            row = int(before[column])
            row_of[column] = row
            column_of[row], column = column, int(column_of[row])
            if row == added:
                break
    return column_of


OTHERS: dict[str, Callable[[Collection], Floats]] = {
    "fifo_perf": _in_line,
    "finish_time_fairness": _finish_time_fairness,
    "isolated": _isolated,
    "max_sum_throughput_normalized_by_cost_perf_SLOs": _with_deadlines,
}
REMEMBERING: dict[str, Callable[[], Policy]] = {"allox": _Planned, "fifo": _Drawn}
