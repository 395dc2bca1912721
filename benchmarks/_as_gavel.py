"""Simulates a shared cluster as Gavel's own simulator does (stanford-futuredata/gavel at c4fa400), faults included.

Properties of that program that orchestrator.arena.rounds does not share, because no user would want them:

- A new job has no share until the next recomputation, up to 32 minutes later. Meanwhile it may hold otherwise idle
  GPUs, but does not run on them.
- Shares computed at second 0 count as missing, so they are recomputed as soon as anything changes.
- While no job runs, the clock jumps to the next arrival.
- Without knowledge of speeds, types are filled in the order of Python's own generator with seed 5.

Policies without a solver give the reference's results. So do all 120 jobs under Gavel's cost policy if its own solver
(ECOS) is used. The remaining differences come from the solver: its residues of shares that are zero decide which job
gets an idle GPU, and rounding values below 1e-9 to zero changes the cost with deadlines by 3.6 %.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._policies_of_gavel import Policy, as_fast_as_the_first
from benchmarks._policies_of_gavel import policy as policy_of
from orchestrator.arena.job_traces import JobTrace
from orchestrator.arena.rounds import Cluster
from orchestrator.policy.groups import Collection, Supply
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.problem import Floats

SEED_OF_ORDER = 5
IN_ORDER = ("perf", "packed", "allox", "gandiva")
"""Parts of the names of policies that fill types from the first to the last."""


@dataclass(frozen=True, slots=True)
class Prices:
    """`at_s` (changes,), ascending; `usd_per_h` (changes, types): of one GPU from then on."""

    at_s: Floats
    usd_per_h: Floats

    @classmethod
    def read(cls, path: Path, types: Sequence[str]) -> Prices:
        """The prices in a table with `worker_type`, `t_s` and `usd_per_gpu_hour`."""
        with path.open(newline="") as file:
            rows = [
                (row["worker_type"], float(row["t_s"]), float(row["usd_per_gpu_hour"])) for row in csv.DictReader(file)
            ]
        at_s = np.unique([at for _, at, _ in rows])
        usd_per_h = np.empty((len(at_s), len(types)))
        for number, name in enumerate(types):
            own = sorted((at, usd) for each, at, usd in rows if each == name)
            last = np.searchsorted([at for at, _ in own], at_s, side="right") - 1
            usd_per_h[:, number] = np.array([usd for _, usd in own])[np.maximum(last, 0)]
        return cls(at_s, usd_per_h)

    def at(self, now_s: float) -> Floats:
        """(types,): the prices at a time."""
        return np.asarray(self.usd_per_h[max(int(np.searchsorted(self.at_s, now_s, side="right")) - 1, 0)])


class AsGavel(Cluster):
    """`policy`: its name in Gavel. Prices may change, and jobs have deadlines."""

    def __init__(self, trace: JobTrace, gpus: Floats, policy: str, prices: Prices) -> None:
        jobs = replace(trace.jobs, weight=None)
        self._prices, self._allowed_s = prices, trace.deadline_s - jobs.at_s
        self._seen_s = np.full(len(jobs.at_s), np.nan)
        jobs = replace(jobs, rate=np.where(jobs.gpus[:, None] <= gpus, jobs.rate, 0.0))
        supply = Supply(gpus, prices.at(0.0))
        chosen = self._policy(policy)
        super().__init__(jobs, supply, lambda jobs: chosen(jobs, self._there), fills=not policy.startswith("fifo"))
        self._shuffled = None if any(each in policy for each in IN_ORDER) else random.Random(SEED_OF_ORDER)
        self._blind = policy == "finish_time_fairness"
        self._known, self._there = np.zeros(len(jobs.at_s), dtype=bool), np.zeros(0, dtype=np.int64)

    def _policy(self, name: str) -> Policy:
        """A policy by Gavel's name."""
        return policy_of(name)

    def _idle(self, arrived: int) -> None:
        if arrived < len(self.jobs.at_s):
            self._now_s = float(self.jobs.at_s[arrived])
        else:
            self._solved_s = -np.inf

    def _due(self) -> bool:
        return super()._due() or self._solved_s == 0.0

    def _types(self) -> Sequence[int]:
        types = list(super()._types())
        if self._shuffled is not None:
            self._shuffled.shuffle(types)
        return types

    def _chosen(self, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._see(there)
        chosen, on = super()._chosen(there)
        known = self._known[chosen]
        return chosen[known], on[known]

    def _waiting(self, there: np.ndarray) -> Collection:
        self._known[there], self._there = True, there
        self.supply = replace(self.supply, usd_per_h=self._usd_per_h())
        self._see(there)
        left_s = self._allowed_s[there] + self._seen_s[there] - self._now_s
        return replace(super()._waiting(there), deadline_s=np.where(left_s > 0, left_s, np.inf))

    def _see(self, there: np.ndarray) -> None:
        """A job's time until its deadline begins at the round that first sees it, not at its arrival."""
        self._seen_s[there] = np.where(np.isnan(self._seen_s[there]), self._now_s, self._seen_s[there])

    def _rate_alone(self, waiting: Collection) -> Floats:
        return alone(as_fast_as_the_first(waiting) if self._blind else waiting)

    def _usd_per_h(self) -> Floats:
        return self._prices.at(self._now_s)

    def _round(self, jobs: np.ndarray, on: np.ndarray) -> bool:
        news = super()._round(jobs, on)
        before = self.supply.usd_per_h
        self.supply = replace(self.supply, usd_per_h=self._usd_per_h())
        return news or not np.array_equal(before, self.supply.usd_per_h)
