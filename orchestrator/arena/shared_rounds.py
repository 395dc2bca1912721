"""Simulates a cluster whose jobs share GPUs in pairs, under a policy that knows only estimates of the rates of pairs.

Rounds and priorities are those of arena.rounds, with an additional row for each pair that the policy uses. The true
speed of a pair, and whether its memory fits, show when it runs; then the estimates are updated. A policy does not count
on an unknown pair. So a job that would otherwise wait is tried for one round beside a running one, if the estimates
expect both together to gain. The product itself never runs two jobs on one GPU today.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.arena.rounds import CREDIT_S, ROUND_S, Arrivals
from orchestrator.policy.groups import Allocation, Collection, Program, Supply, Together, collection, solve
from orchestrator.policy.groups.problem import Floats, Integers

MOST_ROUNDS = 100_000


class Estimates(Protocol):
    """A policy's knowledge of pairs of kinds of jobs."""

    def together(self) -> Together:
        """The pairs to count on."""
        ...

    def promising(self, first: int, second: int, way: int, /) -> bool:
        """Whether a pair that was never measured is worth a try."""
        ...

    def saw(self, first: int, second: int, way: int, rates: tuple[float, float], /) -> bool:
        """A pair ran with these steps/s; both 0: its memory did not fit. Returns whether the estimates changed."""
        ...


@dataclass(frozen=True, slots=True)
class SharedOutcome:
    """`ended_s` (jobs,); the rounds in which pairs ran (`paired`), the tries among them (`tried`), and the pairs that
    did not fit (`misfits`)."""

    ended_s: Floats
    paired: int
    tried: int
    misfits: int


class SharedCluster:
    """Jobs with one GPU each. `kind` (jobs,): their kinds; `beside` (kinds, kinds, ways): true steps/s of the first
    kind beside the second, 0 where the pair does not fit."""

    def __init__(
        self,
        jobs: Arrivals,
        kind: Integers,
        beside: Floats,
        supply: Supply,
        policy: Callable[[Collection], Program],
        estimates: Estimates,
    ) -> None:
        """Raises ValueError if a job needs several GPUs: no such pairs have been measured."""
        if (jobs.gpus != 1).any():
            raise ValueError("pairs of jobs with several GPUs are not simulated")
        self.jobs, self.kind, self.beside, self.supply = jobs, kind, beside, supply
        self.policy, self.estimates = policy, estimates
        self._left, self._ended = jobs.steps.copy(), np.full(len(kind), np.nan)
        self._share: dict[tuple[int, int, int], float] = {}
        self._had: dict[tuple[int, int, int], float] = {}
        self._paired, self._tried, self._misfits = 0, 0, 0

    def run(self) -> SharedOutcome:
        """Run until all jobs have ended. Shares are recomputed whenever a job arrives or ends, or a new pair has been
        measured. Raises RuntimeError after 100,000 rounds."""
        now_s, outdated, before = 0.0, True, 0
        for _ in range(MOST_ROUNDS):
            arrived = int(np.searchsorted(self.jobs.at_s, now_s + 1e-9, side="right"))
            there = np.flatnonzero(np.isnan(self._ended[:arrived]))
            if not len(there):
                if arrived == len(self.kind):
                    return SharedOutcome(self._ended, self._paired, self._tried, self._misfits)
                now_s = float(self.jobs.at_s[arrived])
                continue
            if outdated or arrived > before:
                self._plan(there, now_s)
            before = arrived
            outdated = self._round(self._chosen(there), now_s)
            now_s += ROUND_S
        raise RuntimeError(f"some jobs have not ended after {MOST_ROUNDS} rounds")

    def _plan(self, there: np.ndarray, now_s: float) -> None:
        """The share of each (job, other or -1, way). A class of equal jobs divides its time evenly."""
        waiting = collection(
            self.jobs.rate[there],
            self.supply,
            steps=self._left[there],
            age_s=now_s - self.jobs.at_s[there],
            weight=None if self.jobs.weight is None else self.jobs.weight[there],
            kind=self.kind[there],
            together=self.estimates.together(),
        )
        program = self.policy(waiting)
        found: Allocation = solve(program, central=True)
        self._share = {(int(there[job]), -1, int(way)): found.shares[job, way] for job, way in _used(found.shares)}
        pairs, class_of = program.problem.pairs, program.problem.class_of
        assert pairs is not None
        for pair in np.flatnonzero(found.together > 1e-9):
            ones, others = (there[class_of == each[pair]] for each in (pairs.first, pairs.second))
            both = [(int(a), int(b)) for a in ones for b in others if a < b or (a != b and ones[0] != others[0])]
            for one, other in both:
                self._share[one, other, int(pairs.way[pair])] = found.together[pair] / len(both)
        self._had = {}

    def _chosen(self, there: np.ndarray) -> list[tuple[int, int, int]]:
        """The (job, other or -1, way) of the next round: those furthest behind their shares, then the remaining jobs
        alone, then tries."""
        left, free = self.supply.gpus.astype(int).copy(), set(there.tolist())
        order = sorted(self._share, key=lambda each: (-self._share[each] / self._had.get(each, CREDIT_S), each))
        alone = [(job, -1, int(way)) for job in there.tolist() for way in np.argsort(-self.jobs.rate[job])]
        chosen = []
        for job, other, way in (*order, *alone):
            able = self.jobs.rate[job, way] > 0 and left[way] > 0
            if able and job in free and (other < 0 or other in free):
                free -= {job, other}
                left[way] -= 1
                chosen.append((job, other, way))
        for number, (job, other, way) in enumerate(chosen):
            if other < 0 and (found := self._company(job, way, sorted(free))) is not None:
                free.discard(found)
                chosen[number] = (job, found, way)
                self._tried += 1
                break  # one try a round, so a wrong guess costs little
        return chosen

    def _company(self, job: int, way: int, waiting: list[int]) -> int | None:
        """A waiting job that is worth a try beside a running one."""
        kind = int(self.kind[job])
        able = (each for each in waiting if self.jobs.rate[each, way] > 0)
        return next((each for each in able if self.estimates.promising(kind, int(self.kind[each]), way)), None)

    def _round(self, chosen: list[tuple[int, int, int]], now_s: float) -> bool:
        """Whether a job ended or a pair was measured for the first time."""
        news = False
        for job, other, way in chosen:
            self._had[job, other, way] = self._had.get((job, other, way), CREDIT_S) + ROUND_S
            rates = {job: float(self.jobs.rate[job, way])}
            if other >= 0:
                one, two = int(self.kind[job]), int(self.kind[other])
                both = float(self.beside[one, two, way]), float(self.beside[two, one, way])
                news |= self.estimates.saw(one, two, way, both)
                self._paired += 1
                if both[0] > 0:
                    rates = {job: both[0], other: both[1]}
                else:
                    self._misfits += 1  # the first one runs alone then
            for each, rate in rates.items():
                took_s = self._left[each] / rate
                self._left[each] -= rate * ROUND_S
                if took_s <= ROUND_S:
                    self._ended[each] = now_s + took_s
                    news = True
        return news


def _used(shares: Floats) -> list[tuple[int, int]]:
    rows, ways = np.nonzero(shares > 1e-9)
    return list(zip(rows.tolist(), ways.tolist(), strict=True))
