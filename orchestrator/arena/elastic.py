"""Simulates jobs on an elastic market, where each job rents the GPUs that the least-cost plan with deadlines gives it.

The policy is policy.groups.policies.cost; supply is not limited, prices are constant, and a job pays for a machine from
its request to the end of its use; the start takes `restart_s` of that. The shares of a job become leases as follows: it
starts at once; it stays where it is as long as its share there lasts for another round; otherwise it moves to a faster
way that is on time. So a job that mixes two ways runs on the cheaper one first and moves once. The time of the move is
subtracted from the deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orchestrator.arena.rounds import Arrivals
from orchestrator.policy.groups import Supply, collection, solve
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.problem import Floats

LONG_S = 1e9
"""The deadline of a job without one."""
HARDLY = 1e-6
"""A share, or a fraction of a job's steps, below this counts as zero."""
NOTHING = 1e-9
"""A job may be late by this fraction of its time, because floats are not more exact."""


@dataclass(frozen=True, slots=True)
class Rented:
    """`ended_s` (jobs,), `usd` for all GPU time, `launches` of machines."""

    ended_s: Floats
    usd: float
    launches: int


class ElasticMarket:
    """`deadline_s` (jobs,) is absolute, infinite for none; `usd_per_h` (ways,) is the price of one GPU. With `round_s`
    0, leases may end at any time."""

    def __init__(
        self, jobs: Arrivals, deadline_s: Floats, usd_per_h: Floats, *, round_s: float = 0.0, restart_s: float = 0.0
    ) -> None:
        self._jobs, self._usd_per_h = jobs, usd_per_h
        self._deadline_s = np.minimum(deadline_s, jobs.at_s + LONG_S)
        self._round_s, self._restart_s = round_s, restart_s
        count = len(jobs.at_s)
        self._left, self._ended_s = jobs.steps.astype(float), np.full(count, np.nan)
        self._way = np.full(count, -1)
        self._since_s, self._ready_s = np.zeros(count), np.zeros(count)  # updated, and able to work, since
        self._usd, self._launches = 0.0, 0

    def run(self, done: Callable[[int, int], None] = lambda _ended, _jobs: None) -> Rented:
        """Run until all jobs have ended. `done` is called now and then with the number of ended jobs and of all
        jobs."""
        events = [(float(at_s), job) for job, at_s in enumerate(self._jobs.at_s)]
        heapq.heapify(events)
        while events:
            now_s, job = heapq.heappop(events)
            due = [job]
            while events and events[0][0] <= now_s:
                due.append(heapq.heappop(events)[1])
            running = [each for each in due if self._goes_on(each, now_s)]
            for each, again_s in self._decided(running, now_s):
                heapq.heappush(events, (again_s, each))
            done(len(self._ended_s) - int(np.isnan(self._ended_s).sum()), len(self._ended_s))
        return Rented(self._ended_s, self._usd, self._launches)

    def _goes_on(self, job: int, now_s: float) -> bool:
        """Advance a job from its last update to now. Returns whether there is work left."""
        way = int(self._way[job])
        if way >= 0:
            worked_s = max(0.0, now_s - max(self._since_s[job], self._ready_s[job]))
            self._left[job] -= worked_s * self._jobs.rate[job, way]
            self._usd += (now_s - self._since_s[job]) * self._jobs.gpus[job] * self._usd_per_h[way] / 3600
        self._since_s[job] = now_s
        if self._left[job] > HARDLY * self._jobs.steps[job]:
            return True
        self._ended_s[job] = now_s
        return False

    def _decided(self, jobs: list[int], now_s: float) -> list[tuple[int, float]]:
        """Put each of these jobs where its plan wants it; returns the time of its next update."""
        if not jobs:
            return []
        there, rate = np.array(jobs), self._jobs.rate[jobs]
        moves_s = np.where(self._way[there] < 0, 2 * self._restart_s, self._restart_s)
        fastest = np.argmax(rate, axis=1)
        on_fastest = self._way[there] == fastest
        starting_s = np.maximum(self._ready_s[there] - now_s, 0) + np.where(on_fastest, 0, moves_s)
        left_s = self._deadline_s[there] - now_s - starting_s
        least_s = self._left[there] / rate[np.arange(len(there)), fastest]
        horizon_s = np.maximum(left_s, least_s)  # a job that cannot be on time runs as fast as possible
        plan = collection(
            rate,
            Supply(np.full(len(self._usd_per_h), np.inf), self._usd_per_h),
            gpus=self._jobs.gpus[there],
            steps=self._left[there],
            deadline_s=horizon_s,
        )
        wanted_s = solve(least_cost(plan)).shares * horizon_s[:, None]
        return [(job, self._placed(job, wanted_s[row], now_s)) for row, job in enumerate(jobs)]

    def _placed(self, job: int, wanted_s: Floats, now_s: float) -> float:
        """Leave a job where it is, or move it; returns the end of its lease or of its work there. `wanted_s` (ways,):
        how long the plan wants it to work in each way."""
        rate, way = self._jobs.rate[job], int(self._way[job])
        ends_s = self._left[job] / np.maximum(rate, HARDLY)
        lasts = (wanted_s >= max(self._round_s, HARDLY)) | (wanted_s >= ends_s * (1 - HARDLY))
        if way < 0 and lasts.any():
            way = self._moved(job, int(np.argmin(np.where(lasts, self._usd_per_h, np.inf))), now_s)
        elif way < 0 or not lasts[way]:
            left_s = self._deadline_s[job] - now_s - self._restart_s
            on_time = (ends_s * (1 - NOTHING) <= left_s) & (rate > (0 if way < 0 else rate[way]))
            costs = np.where(on_time, self._usd_per_h * ends_s, np.inf)
            fastest = int(np.argmax(rate))
            if (to := int(np.argmin(costs)) if on_time.any() else fastest) != way:
                way = self._moved(job, to, now_s)
            return max(now_s, float(self._ready_s[job])) + float(ends_s[way])  # it no longer moves
        lease_s = wanted_s[way] // self._round_s * self._round_s if self._round_s else wanted_s[way]
        ends = wanted_s[way] >= ends_s[way] * (1 - HARDLY)
        return max(now_s, float(self._ready_s[job])) + float(ends_s[way] if ends else lease_s)

    def _moved(self, job: int, to: int, now_s: float) -> int:
        self._way[job], self._ready_s[job] = to, now_s + self._restart_s
        self._launches += 1
        return to
