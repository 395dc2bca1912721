"""The value table: the least expected cost to finish, by time left, slack, what runs and which pools have capacity.

Slack is the time left minus the work left and the restart overhead still to sit out, both on the fastest on-demand
machine. Waiting uses slack up, so do restarts and slower machines; without slack the rest must be bought on demand,
and what would end too late costs TOO_LATE. A stochastic dynamic program from the deadline backwards: at each step the
pools change by the chains of `Spells`, then the cheapest action is taken, knowing which pools have capacity (a launch
that fails is free, so whoever wants to know can try).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.spells import Floats, Spells

TOO_LATE = 1e7
"""USD of missing the deadline."""
Table = NDArray[np.float32]
STEPS, SLACKS = 96, 40
"""Steps of time and of slack, with several pools."""
STEPS_ALONE, SLACKS_ALONE = 160, 64
"""The same with one pool, whose states are few."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is left to do, and at which prices. Hours, US$ per hour; pools by their number in the market.

    `spot_usd` and `speed` (relative to the on-demand machine's, at most 1) are those of `pools`, the spot pools that
    are considered; `egress_usd` is what a launch costs by the checkpoint's pool and the launch's. `at` is where the
    checkpoint is, None if there is none.
    """

    hours_left: float
    slack_h: float
    tick_h: float
    restart_h: float
    pools: tuple[int, ...]
    spot_usd: tuple[float, ...]
    speed: tuple[float, ...]
    on_demand_pool: int
    on_demand_usd: float
    egress_usd: Floats
    at: int | None


class ValueTable:
    """The solution of a Problem. `spells` are read when it is made, not later."""

    def __init__(self, problem: Problem, spells: Spells) -> None:
        self.problem = problem
        self._spot_of = {pool: number for number, pool in enumerate(problem.pools)}
        here = () if problem.at is None else (problem.at,)
        places = sorted({*problem.pools, problem.on_demand_pool, *here})
        self._place_of: dict[int | None, int] = {pool: number for number, pool in enumerate(places)}
        self._place_of[None] = len(places)
        alone = len(problem.pools) == 1
        steps = STEPS_ALONE if alone else STEPS
        self._steps = max(2, min(steps, round(problem.hours_left / problem.tick_h)))
        self._step_h = problem.hours_left / self._steps
        count = SLACKS_ALONE if alone else SLACKS
        most_h = max(problem.slack_h, 2 * problem.restart_h) * 1.02 + 1e-6
        self._slack_h: Floats = most_h * (np.arange(count) / (count - 1)) ** 2  # finest where it is scarce
        self._idle, self._bought, self._spot = self._solved(spells, places)

    def knows(self, place: int | None) -> bool:
        """Whether the checkpoint's place was considered."""
        return place in self._place_of

    def waiting(self, at: int | None, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish if nothing runs, with the checkpoint in a pool. `states`: probabilities by pool considered."""
        place = self._place_of[at]
        return self._at(
            hours_left, slack_h, lambda k, j: _averaged(states, self._idle[k : k + 2, ..., place, j : j + 2])
        )

    def on_demand(self, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish while it runs on demand."""
        return self._at(hours_left, slack_h, lambda k, j: _averaged(states, self._bought[k : k + 2, ..., j : j + 2]))

    def spot(self, pool: int, phase: Floats, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish while it runs in a spot pool, whose machine is in a phase with these probabilities."""
        number = self._spot_of[pool]
        others = [phase, *(state for each, state in enumerate(states) if each != number)]
        return self._at(
            hours_left, slack_h, lambda k, j: _averaged(others, self._spot[number][k : k + 2, ..., j : j + 2])
        )

    def _at(self, hours_left: float, slack_h: float, corners: Any) -> float:
        if hours_left - slack_h <= 1e-9:
            return 0.0
        if slack_h < -1e-9:
            return TOO_LATE
        along = min(max(hours_left / self._step_h, 0.0), self._steps)
        k = min(int(along), self._steps - 1)
        grid = self._slack_h
        slack_h = min(max(slack_h, 0.0), float(grid[-1]))
        j = min(int(np.searchsorted(grid, slack_h, side="right")) - 1, len(grid) - 2)
        later = along - k
        more = (slack_h - float(grid[j])) / float(grid[j + 1] - grid[j])
        (a, b), (c, d) = corners(k, j).tolist()
        return float((a * (1 - later) + c * later) * (1 - more) + (b * (1 - later) + d * later) * more)

    def _solved(self, spells: Spells, places: Sequence[int]) -> tuple[Table, Table, list[Table]]:
        """Tables over (step, states of the pools..., [place], slack): nothing runs, on demand, and, over (step, phase,
        states of the other pools..., slack), each spot pool."""
        its, pools, grid, step_h = self.problem, self.problem.pools, self._slack_h, self._step_h
        count, size, there = len(pools), len(self._slack_h), spells.there
        change = [spells.step(pool, step_h).astype(np.float32) for pool in pools]
        survive = [spells.survival(pool, step_h).astype(np.float32) for pool in pools]
        # Alone, a pool is taken as soon as it is back; with others, capacity is found at any age.
        begin = [(np.eye(there)[0] if count == 1 else spells.mature(pool)).astype(np.float32) for pool in pools]
        restart, wait = _Less(grid, its.restart_h), _Less(grid, step_h)
        slower = [_Less(grid, step_h * (1 - speed)) for speed in its.speed]
        egress = np.zeros((len(places) + 1, len(places)), np.float32)
        for row, source in enumerate(places):
            egress[row] = [its.egress_usd[source][target] for target in places]
        bought_at = places.index(its.on_demand_pool)
        spot_at = [places.index(pool) for pool in pools]
        present = spells.away
        states = (spells.phases,) * count
        idle = np.zeros((self._steps + 1, *states, len(places) + 1, size), np.float32)
        bought = np.zeros((self._steps + 1, *states, size), np.float32)
        spot = [np.zeros((self._steps + 1, there, *states[1:], size), np.float32) for _ in pools]
        for k in range(1, self._steps + 1):
            work_h = k * step_h - grid
            done = work_h <= 1e-9
            share = np.clip(work_h / step_h, 0, 1).astype(np.float32)
            onward = idle[k - 1]
            go_on = its.on_demand_usd * step_h * share + _mixed(change, bought[k - 1])
            best = np.minimum(wait(_mixed(change, onward)), restart(go_on)[..., None, :] + egress[:, bought_at, None])
            stays = []
            for i in range(count):
                lost = np.take(onward, 0, axis=i)[..., spot_at[i], :]
                kept = np.tensordot(survive[i][:there, :there], spot[i][k - 1], (1, 0))
                after = kept + survive[i][:there, there].reshape((there,) + (1,) * count) * lost
                after = slower[i](_mixed(change[:i] + change[i + 1 :], after, first=1))
                hours = step_h * np.clip(work_h / (step_h * its.speed[i]), 0, 1).astype(np.float32)
                stays.append(np.minimum(its.spot_usd[i] * hours + after, TOO_LATE))
                launched = restart(np.tensordot(begin[i], stays[i], (0, 0)))
                where = (slice(None),) * i + (present,)
                best[where] = np.minimum(best[where], launched[..., None, :] + egress[:, spot_at[i], None])
            best[..., done] = 0
            idle[k] = best
            bought[k] = np.minimum(go_on, best[..., bought_at, :])
            bought[k][..., done] = 0
            for i in range(count):
                here = np.take(best, present, axis=i)[..., spot_at[i], :]
                spot[i][k] = np.minimum(stays[i], here[None])
                spot[i][k][..., done] = 0
        return idle, bought, spot


class _Less:
    """Values over slack -> values with so many hours less slack."""

    def __init__(self, slack_h: Floats, hours: float) -> None:
        self._none = hours <= 1e-12
        left = slack_h - hours
        self._late = left < -1e-9
        left = np.maximum(left, 0)
        self._at = np.clip(np.searchsorted(slack_h, left, side="right") - 1, 0, len(slack_h) - 2)
        self._more = np.clip((left - slack_h[self._at]) / (slack_h[self._at + 1] - slack_h[self._at]), 0, 1).astype(
            np.float32
        )

    def __call__(self, values: Table) -> Table:
        if self._none:
            return values
        moved = values[..., self._at] * (1 - self._more) + values[..., self._at + 1] * self._more
        moved[..., self._late] = TOO_LATE
        return np.minimum(moved, TOO_LATE, dtype=np.float32)


def _mixed(change: Sequence[Table], values: Table, first: int = 0) -> Table:
    """The expectation of `values` after each pool's state (its axis, from `first` on) has changed."""
    for axis, matrix in enumerate(change, first):
        values = np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)
    return values


def _averaged(weights: Sequence[Floats], values: Table) -> NDArray[Any]:
    """The expectation over the axes of `weights`, which follow the first axis of `values`."""
    left: NDArray[Any] = values
    for weight in weights:
        left = np.tensordot(weight, left, (0, 1))
    return left
