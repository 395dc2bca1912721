"""Simulates a fixed cluster that jobs share in rounds, under any policy for groups of jobs.

The mechanism is Gavel's (policy.groups.rounds), in rounds of 360 s. Types are filled from the first to the last. A
round ends with its last job. Shares are recomputed at the start of a round if a job has arrived or ended, but at most
every 1,920 s. As in Gavel, checkpoints cost nothing. The results agree with Gavel's own simulator
(tests/unit/arena/test_rounds.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.policy.groups import Collection, Supply, collection
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.rounds import Room, Standing, next_round

ROUND_S, RECOMPUTED_S = 360.0, 1920.0
CREDIT_S = ROUND_S / 2
"""The time that each job counts as having had on each type when shares are new: without it, the first round decides
everything."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Jobs: `at_s` (jobs,), ascending; `rate` (jobs, types) steps/s; `gpus` (jobs,) that each job takes; `steps`
    (jobs,); `weight` (jobs,) of a job among the others, None: 1 each."""

    at_s: Floats
    rate: Floats
    gpus: Floats
    steps: Floats
    weight: Floats | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`ended_s` (jobs,), `usd` for all used GPU time, `solved`: how often shares were computed."""

    ended_s: Floats
    usd: float
    solved: int


class Cluster:
    """A cluster in the middle of a simulation. `policy` gives shares (jobs, types) for the present jobs.

    `order`: a seed, if types are filled in random order, as Gavel does for policies that do not know the differences
    between types. Jobs without a share use idle GPUs if `fills`.
    """

    def __init__(
        self,
        jobs: Arrivals,
        supply: Supply,
        policy: Callable[[Collection], Floats],
        *,
        order: int | None = None,
        fills: bool = True,
    ) -> None:
        self.jobs, self.supply, self.policy, self._fills = jobs, supply, policy, fills
        self._chance = None if order is None else np.random.default_rng(order)
        shape = jobs.rate.shape
        self._left, self._ended = jobs.steps.copy(), np.full(shape[0], np.nan)
        self._share, self._owed, self._had = np.zeros(shape), np.zeros(shape), np.full(shape, CREDIT_S)
        self._alone_s, self._alone_rate, self._then = np.zeros(shape[0]), np.ones(shape[0]), jobs.steps.copy()
        self._room = Room(np.eye(shape[1]), supply.gpus)
        self._now_s, self._solved_s, self._usd, self._solved = 0.0, -np.inf, 0.0, 0

    def run(self, done: Callable[[int, int], None] = lambda _ended, _jobs: None) -> Outcome:
        """Run until all jobs have ended. `done` is called after each round with the number of ended jobs and of all
        jobs."""
        arrived, changed = 0, False
        while np.isnan(self._ended).any():
            before = arrived
            arrived = int(np.searchsorted(self.jobs.at_s, self._now_s + 1e-9, side="right"))
            there = np.flatnonzero(np.isnan(self._ended[:arrived]))
            if not len(there):
                self._now_s = float(self.jobs.at_s[arrived])
                continue
            changed |= arrived > before
            if changed and self._due():
                self._recompute_shares(there)
                changed = False
            chosen, on = self._chosen(there)
            if not len(chosen):
                if not changed and arrived == len(self.jobs.at_s):
                    raise ValueError("no job fits the cluster")
                self._idle(arrived)
                continue
            changed |= self._round(chosen, on)
            done(len(self._ended) - int(np.isnan(self._ended).sum()), len(self._ended))
        return Outcome(self._ended, self._usd, self._solved)

    def _idle(self, _arrived: int) -> None:
        """Skip a round in which no job has a share. `arrived`: the number of jobs that have arrived."""
        self._now_s += ROUND_S

    def _due(self) -> bool:
        """Whether the last shares are old enough to be recomputed."""
        return self._now_s - self._solved_s >= RECOMPUTED_S

    def _recompute_shares(self, there: np.ndarray) -> None:
        self._settle(there)
        self._alone_s[there] += (self._then[there] - self._left[there]) / self._alone_rate[there]
        self._then[there] = self._left[there]
        waiting = self._waiting(there)
        self._share[:] = 0
        self._share[there] = self.policy(waiting)
        self._alone_rate[there] = self._rate_alone(waiting)
        self._solved_s, self._solved = self._now_s, self._solved + 1

    def _settle(self, there: np.ndarray) -> None:
        """Carry over the difference between each job's share and its received time as owed time (s), and reset the
        received time."""
        since_s = self._now_s - self._solved_s if self._solved else 0.0
        self._owed[there] += self._share[there] * since_s - (self._had[there] - CREDIT_S)
        self._had[there] = CREDIT_S

    def _waiting(self, there: np.ndarray) -> Collection:
        """The policy's view of the present jobs."""
        jobs = self.jobs
        return collection(
            jobs.rate[there],
            self.supply,
            gpus=jobs.gpus[there],
            steps=self._left[there],
            weight=None if jobs.weight is None else jobs.weight[there],
            age_s=self._now_s - jobs.at_s[there],
            alone_s=self._alone_s[there],
        )

    def _rate_alone(self, waiting: Collection) -> Floats:
        """(jobs,): steps/s of each job with an equal share of everything, the basis of `alone_s`."""
        return alone(waiting)

    def _chosen(self, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(jobs, the type of each) of the next round."""
        share, able = self._share[there], self.jobs.rate[there] > 0
        if not self._fills:
            able &= share > 0
        standing = Standing(share, self._had[there], self._owed[there], able, self.jobs.gpus[there])
        chosen, on = next_round(standing, self._room, [[each] for each in self._types()])
        return there[chosen], on

    def _types(self) -> Sequence[int]:
        """The order in which types are filled this round."""
        types = np.arange(len(self.supply.gpus))
        found: list[int] = (types if self._chance is None else self._chance.permutation(types)).tolist()
        return found

    def _round(self, jobs: np.ndarray, on: np.ndarray) -> bool:
        """Whether a job ended."""
        rate = self.jobs.rate[jobs, on]
        steps = np.maximum(np.minimum(np.floor(rate * ROUND_S), self._left[jobs]), 1)
        took_s = steps / rate
        self._left[jobs] -= steps
        self._had[jobs, on] += took_s
        ended = self._left[jobs] <= 0
        self._ended[jobs[ended]] = self._now_s + took_s[ended]
        self._now_s += float(took_s.max())
        self._usd += float((took_s * self.jobs.gpus[jobs] * self._usd_per_h()[on]).sum()) / 3600
        return bool(ended.any())

    def _usd_per_h(self) -> Floats:
        """(types,): prices at the end of a round, which the round is paid at."""
        return self.supply.usd_per_h
