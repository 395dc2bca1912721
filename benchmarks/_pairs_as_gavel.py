"""Simulates a cluster whose jobs share GPUs in pairs as Gavel's own simulator does, faults included.

Facts of that program beyond those in benchmarks/_as_gavel.py:

- Every pair of jobs that take the same number of GPUs has a place of its own in the queue of each type, right after the
  later of the two. Pairs without a share fill idle GPUs, too, if both jobs can run so.
- A pair that is new is owed 180 s of each type, because it counts as having had no time where all others had 180 s.
- Both members of a pair pay for the whole GPU, until the later one has done its steps of the round.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks._as_gavel import AsGavel, Prices
from benchmarks._policies_of_gavel import Policy
from orchestrator.arena.job_traces import JobTrace
from orchestrator.arena.rounds import ROUND_S
from orchestrator.policy.groups import Collection, Program, Together, solve
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.problem import Floats, Integers

PACKED: dict[str, Callable[[Collection], Program]] = {
    "finish_time_fairness_packed": finish_time_fairness,
    "max_min_fairness_packed": max_min_fairness,
    "min_total_duration_packed": makespan,
}
"""Policies of this product by Gavel's names."""


def beside(trace: Path, table: Path, types: Sequence[str]) -> Floats:
    """(jobs, jobs, types): steps/s of the first of two jobs of a trace beside the second; 0: not both fit."""
    with trace.open(newline="") as file:
        jobs = [(row["job_type"], row["scale_factor"]) for row in csv.DictReader(file)]
    rates: dict[tuple[str, str, str, str], float] = {}
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            one, two, where = row["job_type_a"], row["job_type_b"], (row["scale_factor"], row["worker_type"])
            rates[one, two, *where], rates[two, one, *where] = float(row["steps_per_s_a"]), float(row["steps_per_s_b"])
    found = np.zeros((len(jobs), len(jobs), len(types)))
    for first, (one, gpus) in enumerate(jobs):
        for second, (two, as_many) in enumerate(jobs):
            if gpus == as_many:
                found[first, second] = [rates.get((one, two, gpus, each), 0.0) for each in types]
    return found


class PairsAsGavel(AsGavel):
    """`beside` (jobs, jobs, types): steps/s of the first job beside the second. Prices are constant.

    The arrays of the base class have rows for pairs behind those of jobs.
    """

    def __init__(self, trace: JobTrace, gpus: Floats, policy: str, prices: Prices, beside: Floats) -> None:
        super().__init__(trace, gpus, policy, prices)
        jobs, types = self.jobs.rate.shape
        self._beside = beside
        self._shared = np.zeros((jobs * jobs, types))
        self._share, self._owed, self._had = (
            np.concatenate([each, self._shared]) for each in (self._share, self._owed, self._had)
        )

    def _policy(self, name: str) -> Policy:
        return lambda jobs, there: self._solved_together(PACKED[name], jobs, there)

    def _solved_together(self, policy: Callable[[Collection], Program], jobs: Collection, there: Integers) -> Floats:
        rate = self._beside[np.ix_(there, there)]
        one, two, way = np.nonzero(rate)
        one, two, way = (each[one < two] for each in (one, two, way))
        together = Together(one, two, way, rate[one, two, way], rate[two, one, way])
        program = policy(replace(jobs, kind=np.arange(len(there)), together=together))
        found = solve(program, central=True)
        pairs = program.problem.pairs
        assert pairs is not None
        self._shared[:] = 0
        one, two = there[np.minimum(pairs.first, pairs.second)], there[np.maximum(pairs.first, pairs.second)]
        self._shared[one * len(self.jobs.at_s) + two, pairs.way] = found.together
        return found.shares

    def _rows(self, there: np.ndarray) -> np.ndarray:
        """Jobs and pairs of jobs, in the order in which they came."""
        later, place = np.tril_indices(len(there))
        second, first = there[later], there[np.maximum(place - 1, 0)]
        alone = place == 0
        rows = np.where(alone, second, len(self.jobs.at_s) * (1 + first) + second)
        return np.asarray(rows[alone | (self.jobs.gpus[first] == self.jobs.gpus[second])])

    def _members(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The jobs of each row; one alone is twice the same."""
        first, second = np.divmod(rows, len(self.jobs.at_s))
        return np.where(first == 0, second, first - 1), second

    def _rates(self, rows: np.ndarray) -> Floats:
        """(2, rows, types): steps/s of both members."""
        one, two = self._members(rows)
        alone, both = (one == two)[:, None], ((one, two), (two, one))
        return np.stack([np.where(alone, self.jobs.rate[a], self._beside[a, b]) for a, b in both])

    def _recompute_shares(self, there: np.ndarray) -> None:
        rows = self._rows(there)
        self._settle(rows[rows >= len(self.jobs.at_s)])
        super()._recompute_shares(there)
        self._share[len(self.jobs.at_s) :] = self._shared

    def _chosen(self, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._see(there)
        rows = self._rows(there)
        one, two = self._members(rows)
        able = (self._rates(rows) > 0).all(axis=0)
        free, chosen, on = set(there.tolist()), list[int](), list[int]()
        for kind in self._types():
            left = self.supply.gpus[kind]
            at = np.flatnonzero(able[:, kind])
            share, had = self._share[rows[at], kind], self._had[rows[at], kind]
            priority = np.divide(share, had, out=np.zeros(len(at)), where=had > 0)
            for place in at[np.lexsort((-share, -self._owed[rows[at], kind], -priority))]:
                if left <= 0:
                    break
                if one[place] in free and two[place] in free and self.jobs.gpus[one[place]] <= left:
                    free -= {one[place], two[place]}
                    left -= self.jobs.gpus[one[place]]
                    chosen.append(place)
                    on.append(kind)
        known = np.flatnonzero(self._known[one[chosen]] & self._known[two[chosen]])
        return rows[chosen][known], np.array(on, dtype=np.int64)[known]

    def _round(self, rows: np.ndarray, on: np.ndarray) -> bool:
        one, two = self._members(rows)
        rate = np.take_along_axis(self._rates(rows), on[None, :, None], axis=2)[:, :, 0]
        members = np.stack([one, two])
        left, paired = self._left[members], one != two
        steps = np.maximum(np.minimum(np.floor(rate * ROUND_S), left), 1)
        took_s = (steps / rate).max(axis=0)
        self._left[members] = left - steps
        self._had[rows, on] += took_s
        ended = left <= steps
        self._ended[members[ended]] = self._now_s + np.stack([took_s, took_s])[ended]
        self._now_s += float(took_s.max())
        self._usd += float((took_s * self.jobs.gpus[one] * (1 + paired) * self._usd_per_h()[on]).sum()) / 3600
        return bool(ended.any())
