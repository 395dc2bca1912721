"""Policies of a shared cluster, for simulations: the policies of group files, and others to compare them with.

Among equally good answers, the makespan policy prefers the most total progress. A policy that does not know the speed
of models on each kind of GPU has no reason to prefer one: a job's time goes to all kinds in proportion to their GPUs.
Kinds are then filled in random order, as in Gavel (Narayanan et al., OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.arena.rounds import Arrivals, Cluster
from orchestrator.policy.groups import Collection, Program, Supply, solve
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import makespan
from orchestrator.policy.groups.policies.named import PROGRAMS
from orchestrator.policy.groups.policies.throughput import of_steps, throughput_per_dollar
from orchestrator.policy.groups.policies.water_filling import water_filling
from orchestrator.policy.groups.problem import Floats


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """`shares`: of a cluster's time for the present jobs, (jobs, kinds). `agnostic`: it does not know the speed of
    models on each kind. `fills`: jobs use GPUs that the shares leave idle."""

    shares: Callable[[Collection], Floats]
    agnostic: bool = False
    fills: bool = True

    def cluster(self, jobs: Arrivals, supply: Supply, *, order: int = 0) -> Cluster:
        """A cluster under this policy; `order`: the seed of random orders of the kinds. A job gets no share of a kind
        with fewer GPUs than it takes."""
        jobs = replace(jobs, rate=np.where(jobs.gpus[:, None] <= supply.gpus, jobs.rate, 0.0))
        return Cluster(jobs, supply, self.shares, order=order if self.agnostic else None, fills=self.fills)


def _solved(program: Callable[[Collection], Program]) -> ClusterPolicy:
    return ClusterPolicy(lambda jobs: solve(program(jobs), central=True).shares)


def _agnostic(program: Callable[[Collection], Program]) -> ClusterPolicy:
    def shares(jobs: Collection) -> Floats:
        time = solve(program(jobs.agnostic()), central=True).shares.sum(axis=1, keepdims=True)
        return np.asarray(time * (jobs.supply.gpus / jobs.supply.gpus.sum()))

    return ClusterPolicy(shares, agnostic=True)


def _shortest(jobs: Collection) -> Floats:
    """The shortest makespan; among the answers that have it, one with the most progress, where each job's progress is
    relative to its fastest kind."""
    program = makespan(jobs)
    fastest = program.problem.rate.max(axis=1, keepdims=True)
    progress = of_steps(program.problem, np.broadcast_to(1 / fastest, program.problem.rate.shape))
    return solve(replace(program, terms=(*program.terms, progress))).shares


def _in_line(jobs: Collection) -> Floats:
    """In the order of arrival, each job gets the fastest kind with free GPUs, until the first job that has to wait: no
    later job starts before it. As in Gavel, every placement is recomputed each time, regardless of where jobs run now:
    an older job can take the GPUs of a younger one."""
    shares, left = np.zeros(jobs.rate.shape), jobs.supply.gpus.copy()
    for job in np.argsort(-jobs.age_s, kind="stable"):
        rate = np.where(left >= jobs.gpus[job], jobs.rate[job], 0.0)
        kind = int(np.argmax(rate))
        if rate[kind] <= 0:
            break
        shares[job, kind] = 1.0
        left[kind] -= jobs.gpus[job]
    return shares


POLICIES: Mapping[str, ClusterPolicy] = {
    **{name: _solved(program) for name, program in PROGRAMS.items()},
    "makespan": ClusterPolicy(_shortest),
    "max-min-fairness-agnostic": _agnostic(max_min_fairness),
    "makespan-agnostic": _agnostic(makespan),
    "water-filling": ClusterPolicy(lambda jobs: water_filling(jobs).shares),
    "throughput-per-dollar": _solved(throughput_per_dollar),
    "queue": ClusterPolicy(_in_line, fills=False),
}
