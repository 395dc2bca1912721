"""The value table: the least expected cost to finish, by time left, slack, what runs and which pools have capacity.

Slack is the time left minus the work left and the restart overhead still to sit out, both on the fastest on-demand
machine. Waiting uses slack up, so do restarts and slower machines; without slack the rest must be bought on demand,
and what would end too late costs TOO_LATE. Machines cost their price for as long as they are used.

A stochastic dynamic program from the deadline backwards: at each step the pools change by the chains of `Spells`, then
the cheapest action is taken, knowing which pools have capacity (a launch that fails is free, so whoever wants to know
can try).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.spells import Floats, Spells

TOO_LATE = 1e7
"""The cost of missing the deadline, in hours of the on-demand machine: prices are given in that unit."""
Table = NDArray[np.float32]
STEPS, SLACKS = 96, 40
"""The least steps of time, and the steps of slack, with several pools."""
STEPS_ALONE, SLACKS_ALONE = 160, 64
"""The same with one pool, whose states are few."""
LONGEST_STEP_H, MOST_STEPS, MOST_STEPS_ALONE = 0.5, 192, 1600
"""A longer step is made only to keep to so many: it takes spells that are shorter for a loss of a whole step."""


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
    """The solution of a Problem. `spells` are read when it is made, not later.

    Wherever it is asked, `states` are the probabilities of each considered pool's state (see Spells), independent of
    each other.
    """

    def __init__(self, problem: Problem, spells: Spells) -> None:
        self.problem = problem
        here = () if problem.at is None else (problem.at,)
        places = sorted({*problem.pools, problem.on_demand_pool, *here})
        self._place_of: dict[int | None, int] = {pool: number for number, pool in enumerate(places)}
        self._place_of[None] = len(places)
        alone = len(problem.pools) == 1
        least, most = (STEPS_ALONE, MOST_STEPS_ALONE) if alone else (STEPS, MOST_STEPS)
        wanted = min(max(least, round(problem.hours_left / LONGEST_STEP_H)), most)
        self._steps = max(2, min(wanted, round(problem.hours_left / problem.tick_h)))
        self._step_h = problem.hours_left / self._steps
        count = SLACKS_ALONE if alone else SLACKS
        most_h = max(problem.slack_h, 2 * problem.restart_h) * 1.02 + 1e-6
        self._slack_h: Floats = most_h * (np.arange(count) / (count - 1)) ** 2  # finest where it is scarce
        self._grid: list[float] = self._slack_h.tolist()
        numbers = np.arange(spells.phases ** len(problem.pools)).reshape((spells.phases,) * len(problem.pools))
        # Of each pool: the joint states in which it is present, and in which it has just gone, by the others' states.
        self._present = np.array([np.take(numbers, spells.away, axis=i).ravel() for i in range(len(problem.pools))])
        self._gone = np.array([np.take(numbers, 0, axis=i).ravel() for i in range(len(problem.pools))])
        self._modes, self._spot = self._solved(spells, places)

    def knows(self, place: int | None) -> bool:
        """Whether the checkpoint's place was considered."""
        return place in self._place_of

    def waiting(self, at: int | None, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish if nothing runs, with the checkpoint in a pool."""
        return self._at(hours_left, slack_h, self._modes[:, :, self._place_of[at]], joint(states))

    def on_demand(self, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish while it runs on demand."""
        return self._at(hours_left, slack_h, self._modes[:, :, -1], joint(states))

    def spot(self, number: int, phase: Floats, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish while it runs in the spot pool with this number among those considered, on a machine that is in
        a phase with these probabilities."""
        weights = joint([phase, *others(states, number)])
        return self._at(hours_left, slack_h, self._spot[:, number], weights)

    def lost(self, number: int, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish after the loss of a machine there."""
        place = self._place_of[self.problem.pools[number]]
        rows = self._modes[:, :, place]
        return self._at(hours_left, slack_h, rows, joint(others(states, number)), self._gone[number])

    def _at(
        self, hours_left: float, slack_h: float, values: Table, weights: Floats, rows: NDArray[Any] | None = None
    ) -> float:
        """The expectation over the rows of values[step, row, slack], interpolated in time and slack."""
        if hours_left - slack_h <= 1e-9:
            return 0.0
        if slack_h < -1e-9:
            return TOO_LATE
        along = min(max(hours_left / self._step_h, 0.0), self._steps)
        k = min(int(along), self._steps - 1)
        grid = self._grid
        slack_h = min(max(slack_h, 0.0), grid[-1])
        j = min(bisect_right(grid, slack_h) - 1, len(grid) - 2)
        later, more = along - k, (slack_h - grid[j]) / (grid[j + 1] - grid[j])
        cells = values[k : k + 2, :, j : j + 2] if rows is None else values[k : k + 2, rows, j : j + 2]
        (a, b), (c, d) = np.matmul(weights, cells).tolist()
        return float((a * (1 - later) + c * later) * (1 - more) + (b * (1 - later) + d * later) * more)

    def _solved(self, spells: Spells, places: Sequence[int]) -> tuple[Table, Table]:
        """(values while no spot machine runs, over (step, joint state, mode, slack), where the modes are the places of
        the checkpoint, nowhere, and on demand; values on spot, over (step, pool, machine's phase and the others' joint
        state, slack))."""
        its, grid, step_h, there = self.problem, self._slack_h, self._step_h, spells.there
        count, size = len(its.pools), len(self._slack_h)
        change = [spells.step(pool, step_h) for pool in its.pools]
        every = _joint_change(change).astype(np.float32)
        rest = np.stack([_joint_change(change[:i] + change[i + 1 :]) for i in range(count)]).astype(np.float32)[:, None]
        survive = np.stack([spells.survival(pool, step_h) for pool in its.pools]).astype(np.float32)
        # Alone, a pool is taken as soon as it is back; with others, capacity is found at any age.
        begin = np.stack([np.eye(there)[0] if count == 1 else spells.mature(pool) for pool in its.pools])
        restart, wait = _Less(grid, its.restart_h), _Less(grid, step_h)
        slower = [_Less(grid, step_h * (1 - speed)) for speed in its.speed]
        egress = np.array([[its.egress_usd[a][b] for b in places] for a in places] + [[0.0] * len(places)], np.float32)
        bought_at, spot_at = places.index(its.on_demand_pool), np.array([places.index(pool) for pool in its.pools])
        price = np.array(its.spot_usd, np.float32)[:, None, None, None] * np.float32(step_h)
        speed = np.array(its.speed, np.float32)[:, None, None, None]
        joint_states, joint_rest = len(every), rest.shape[-1]
        modes = np.zeros((self._steps + 1, joint_states, len(places) + 2, size), np.float32)
        spot = np.zeros((self._steps + 1, count, there, joint_rest, size), np.float32)
        flat = (joint_states, -1)
        restart_usd = min(*its.spot_usd, its.on_demand_usd) * its.restart_h
        edge = _Edge(grid, 0.0)
        for k in range(1, self._steps + 1):
            work_h = (k * step_h - grid).astype(np.float32)
            share = np.clip(work_h / step_h, 0, 1)
            after = (every @ modes[k - 1].reshape(flat)).reshape(modes[k - 1].shape)
            go_on = its.on_demand_usd * step_h * share + edge.finished(after[:, -1])
            gone = edge.finished(modes[k - 1][self._gone, spot_at[:, None]])[:, None]
            before = edge.finished(spot[k - 1])
            if there > 1:
                kept = np.einsum("zab,zbcs->zacs", survive[:, :there, :there], before)
            else:
                kept = survive[:, :1, :1, None] * before
            stay = rest @ (kept + survive[:, :there, there, None, None] * gone)
            if min(its.speed) < 1:
                stay = np.stack([less(each) for less, each in zip(slower, stay, strict=True)])
            billed = np.clip(work_h / (speed * step_h), 0, 1)
            stay = np.minimum(stay + price * billed, TOO_LATE)
            edge = _Edge(grid, k * step_h)
            edge.continued(go_on, 0.0)
            edge.continued(stay, 0.0)
            launch = restart(np.einsum("za,zacs->zcs", begin, stay).astype(np.float32) if there > 1 else stay[:, 0])
            best = np.minimum(wait(after[:, :-1]), restart(go_on)[:, None] + egress[:, bought_at, None])
            for i in range(count):
                rows = self._present[i]
                best[rows] = np.minimum(best[rows], launch[i][:, None] + egress[:, spot_at[i], None])
            modes[k, :, :-1] = best
            modes[k, :, -1] = np.minimum(go_on, best[:, bought_at])
            spot[k] = np.minimum(stay, best[self._present, spot_at[:, None]][:, None])
            edge.continued(modes[k, :, :-1], restart_usd)
        return modes, spot.reshape(self._steps + 1, count, there * joint_rest, size)


class _Edge:
    """Where, in slack, the work is done at one step: as much slack as time left.

    Values jump to 0 there. So that values just before it can be interpolated, the first one beyond it continues them in
    a straight line to what the least work costs.
    """

    def __init__(self, slack_h: Floats, hours_left: float) -> None:
        self._at = int(np.searchsorted(slack_h, hours_left - 1e-6))
        self._beyond = 0.0
        if 0 < self._at < len(slack_h):
            inside_h = hours_left - float(slack_h[self._at - 1])
            self._beyond = min((float(slack_h[self._at]) - hours_left) / max(inside_h, 1e-9), 1.0)

    def finished(self, values: Table) -> Table:
        """The values, with 0 where the work is done."""
        if self._at >= values.shape[-1]:
            return values
        values = values.copy()
        values[..., self._at :] = 0
        return values

    def continued(self, values: Table, least_usd: float) -> None:
        """Continues the values beyond the edge, in place. `least_usd` is what the least work costs."""
        at = self._at
        if 0 < at < values.shape[-1]:
            values[..., at] = least_usd - (values[..., at - 1] - least_usd) * np.float32(self._beyond)
            values[..., at + 1 :] = least_usd


class _Less:
    """Values over slack -> values with so many hours less slack."""

    def __init__(self, slack_h: Floats, hours: float) -> None:
        left = slack_h - hours
        self._late = left < -1e-9
        left = np.maximum(left, 0)
        self._at = np.clip(np.searchsorted(slack_h, left, side="right") - 1, 0, len(slack_h) - 2)
        more = (left - slack_h[self._at]) / (slack_h[self._at + 1] - slack_h[self._at])
        self._more = np.clip(more, 0, 1).astype(np.float32)

    def __call__(self, values: Table) -> Table:
        low, high = values[..., self._at], values[..., self._at + 1]
        moved = low + (high - low) * self._more
        moved[..., self._late] = TOO_LATE
        return np.minimum(moved, np.float32(TOO_LATE))


def others(states: Sequence[Floats], number: int) -> list[Floats]:
    """All but one."""
    return [state for each, state in enumerate(states) if each != number]


def joint(states: Sequence[Floats]) -> Floats:
    """Probabilities of the joint states of independent pools; the first pool's state changes slowest."""
    product = np.ones(1)
    for state in states:
        product = np.multiply.outer(product, state).ravel()
    return product


def _joint_change(change: Sequence[Floats]) -> Floats:
    """Probabilities of the joint states after a step (column), by those before it (row)."""
    product: Floats = np.ones((1, 1))
    for matrix in change:
        product = np.asarray(np.kron(product, matrix))
    return product
