"""The value table: the least expected cost to finish, by time left, slack, what runs and which pools have capacity.

Slack is the time left minus the work left and the restart overhead still to sit out, both on the fastest on-demand
machine. Waiting uses slack up, so do restarts and slower machines; without slack the rest must be bought on that
machine, and what would end too late costs TOO_LATE. Machines cost their price for as long as they are used.

A stochastic dynamic program from the deadline backwards: at each step the pools change by the chains of `Spells`, then
the cheapest action is taken, knowing which pools have capacity (a launch that fails is free, so whoever wants to know
can try).
"""

from __future__ import annotations

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

    `spot_usd` and `speed` (relative to the fastest on-demand machine's, at most 1) are those of `pools`, the spot pools
    that are considered, and `on_demand_usd` and `on_demand_speed` those of `on_demand_pools`, the first of which is the
    fastest; `egress_usd` is what a launch costs by the checkpoint's pool and the launch's. `at` is where the checkpoint
    is, None if there is none.
    """

    hours_left: float
    slack_h: float
    tick_h: float
    restart_h: float
    pools: tuple[int, ...]
    spot_usd: tuple[float, ...]
    speed: tuple[float, ...]
    on_demand_pools: tuple[int, ...]
    on_demand_usd: tuple[float, ...]
    on_demand_speed: tuple[float, ...]
    egress_usd: Floats
    at: int | None


class PoolTable:
    """What the tables of a Problem have in common: the places that they know, and the numbers of their joint states."""

    def __init__(self, problem: Problem, spells: Spells) -> None:
        self.problem = problem
        here = () if problem.at is None else (problem.at,)
        named = sorted({*problem.pools, *problem.on_demand_pools, *here})
        # Pools whose egress prices are the same, such as those of a region, are one place: that of the first.
        egress = problem.egress_usd[np.ix_(named, named)]
        first: dict[bytes, int] = {}
        alike = [first.setdefault(each.tobytes(), len(first)) for each in np.concatenate([egress, egress.T], axis=1)]
        self._places = [named[alike.index(place)] for place in range(len(first))]
        self._place_of: dict[int | None, int] = dict(zip(named, alike, strict=True))
        self._place_of[None] = len(self._places)
        numbers = np.arange(spells.phases ** len(problem.pools)).reshape((spells.phases,) * len(problem.pools))
        # Of each pool: the joint states in which it is present, and in which it has just gone, by the others' states.
        self._present = np.array([np.take(numbers, spells.away, axis=i).ravel() for i in range(len(problem.pools))])
        self._gone = np.array([np.take(numbers, 0, axis=i).ravel() for i in range(len(problem.pools))])

    def knows(self, place: int | None) -> bool:
        """Whether the checkpoint's place was considered."""
        return place in self._place_of


class ValueTable(PoolTable):
    """The solution of a Problem. `spells` are read when it is made, not later.

    Wherever it is asked, `states` are the probabilities of each considered pool's state (see Spells), independent of
    each other.
    """

    def __init__(self, problem: Problem, spells: Spells, steps: tuple[int, int] | None = None) -> None:
        """`steps`: other limits for the number of steps than STEPS and MOST_STEPS."""
        super().__init__(problem, spells)
        alone = len(problem.pools) == 1
        least, most = steps or ((STEPS_ALONE, MOST_STEPS_ALONE) if alone else (STEPS, MOST_STEPS))
        wanted = min(max(least, round(problem.hours_left / LONGEST_STEP_H)), most)
        self._steps = max(2, min(wanted, round(problem.hours_left / problem.tick_h)))
        self._step_h = problem.hours_left / self._steps
        self._grid = _Grid(problem, self._steps, SLACKS_ALONE if alone else SLACKS)
        self._modes, self._spot = self._solved(spells, self._places)

    def waiting(self, at: int | None, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish if nothing runs, with the checkpoint in a pool."""
        return self._at(hours_left, slack_h, self._modes[:, :, self._place_of[at]], joint(states))

    def on_demand(self, hours_left: float, slack_h: float, states: Sequence[Floats], number: int = 0) -> float:
        """US$ to finish while it runs on demand, in the pool with this number among those on demand."""
        return self._at(hours_left, slack_h, self._modes[:, :, len(self._places) + 1 + number], joint(states))

    def spot(self, number: int, phase: Floats, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """US$ to finish while it runs in the spot pool with this number among those considered. `phase` are the
        probabilities of the machine's phases."""
        weights = joint([phase, *others(states, number)])
        return self._at(hours_left, slack_h, self._spot[:, :, number], weights)

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
        later = along - k
        usd = 0.0
        for step, share in ((k, 1 - later), (k + 1, later)):
            if share > 0:
                j, more = self._grid.cell(step, slack_h)
                cells = values[step, :, j : j + 2] if rows is None else values[step, rows, j : j + 2]
                low, high = (weights @ cells).tolist()
                usd += share * (low + (high - low) * more)
        return float(usd)

    def _solved(self, spells: Spells, places: Sequence[int]) -> tuple[Table, Table]:
        """(values while no spot machine runs, over (step, joint state, mode, slack), where the modes are the places of
        the checkpoint, nowhere, and on demand; values on spot, over (step, the machine's phase and the others' joint
        state, pool, slack))."""
        its, grid, step_h = self.problem, self._grid, self._step_h
        count, size = len(its.pools), grid.size
        change = [spells.step(pool, step_h) for pool in its.pools]
        every = joint_change(change).astype(np.float32)
        rest = np.stack([joint_change(change[:i] + change[i + 1 :]) for i in range(count)]).astype(np.float32)
        survive = np.stack([spells.survival(pool, step_h)[:-1] for pool in its.pools]).astype(np.float32)
        keep, lose = survive[:, :, :-1], survive[:, :, -1:]
        fresh = np.stack([spells.mature(pool) for pool in its.pools], axis=1).astype(np.float32)[:, None, :, None]
        waited = grid.after_step([step_h])
        ran, rented = (
            grid.after_step([step_h * (1 - speed) for speed in speeds]) for speeds in (its.speed, its.on_demand_speed)
        )
        # A slow machine is through its restart when it has done as much as the fastest does in a shorter time.
        launched, bought = (
            grid.at_once([its.restart_h * speed for speed in speeds]) for speeds in (its.speed, its.on_demand_speed)
        )
        egress = np.array([[its.egress_usd[a][b] for b in places] for a in places] + [[0.0] * len(places)], np.float32)
        bought_at, spot_at = ([self._place_of[pool] for pool in pools] for pools in (its.on_demand_pools, its.pools))
        # Machines of one place cost the same to go to.
        machines = [*spot_at, *bought_at]
        reached = [
            ([number for number, at in enumerate(machines) if at == place], egress[:, place, None])
            for place in sorted({*machines})
        ]
        bill = _bills(
            grid.work_h, *(np.array(each, np.float32) * np.float32(step_h) for each in (its.spot_usd, its.speed))
        )
        bought_bill = _bills(
            grid.work_h,
            *((np.array(each) * step_h).astype(np.float32) for each in (its.on_demand_usd, its.on_demand_speed)),
        )
        states, on_demand = len(every), len(places) + 1  # the modes from this on
        present, gone = (self._present.T, range(count)), (self._gone.T, spot_at)
        modes = np.zeros((self._steps + 1, states, on_demand + len(bought_at), size), np.float32)
        spot = np.zeros((self._steps + 1, spells.ages, rest.shape[-1], count, size), np.float32)
        # A young machine is not given up for an older one in the same pool: where they age, the pool counts as empty.
        left = (self._gone if spells.ages > 1 else self._present).T, spot_at
        begun = np.full((states, count + len(bought_at), size), np.inf, np.float32)  # a machine that has just started
        restart_usd = min(*its.spot_usd, *its.on_demand_usd) * its.restart_h
        for k in range(1, self._steps + 1):
            after = (every @ modes[k - 1].reshape(states, -1)).reshape(modes[k - 1].shape)
            by_pool = spot[k - 1].transpose(2, 0, 1, 3)  # over (pool, age, the others' joint state, slack)
            kept = keep @ by_pool.reshape(count, spells.ages, -1)
            kept += lose * modes[k - 1][gone].swapaxes(0, 1).reshape(count, 1, -1)
            ahead = (rest[:, None] @ kept.reshape(by_pool.shape)).transpose(1, 2, 0, 3)
            stay = ran(k, ahead.reshape(-1, count, size)) + bill[k]
            stay = np.minimum(stay, TOO_LATE, out=stay).reshape(ahead.shape)
            go_on = np.minimum(rented(k, after[:, on_demand:]) + bought_bill[k], TOO_LATE)
            begun[present] = launched(k, (fresh * stay).sum(axis=0))
            begun[:, count:] = bought(k, go_on)
            best = modes[k, :, :on_demand]
            best[:] = waited(k, after[:, :on_demand].reshape(-1, 1, size)).reshape(best.shape)
            for (first, *more), way in reached:
                least = begun[:, first]
                for number in more:
                    least = np.minimum(least, begun[:, number])
                np.minimum(best, least[:, None] + way, out=best)
            if grid.ends_done[k]:  # whatever is left to do there needs at least a restart
                best[..., -1] = restart_usd
            np.minimum(go_on, best[:, bought_at], out=modes[k, :, on_demand:])
            np.minimum(stay, best[left], out=spot[k])
        return modes, spot.reshape(self._steps + 1, -1, count, size)


class _Grid:
    """The values of slack at each step that can be reached from the present, finest where slack is scarce.

    Work can only become less, and little more by a restart; so at each time, slack is at least what is left after it,
    and at most the present slack, or all of the time.
    """

    def __init__(self, problem: Problem, steps: int, size: int) -> None:
        self.size = size
        self._left_h: Floats = np.arange(steps + 1, dtype=np.float64) * (problem.hours_left / steps)
        room_h = 2 * problem.restart_h + 1e-6
        work_h = problem.hours_left - problem.slack_h
        high = np.minimum(self._left_h, max(problem.slack_h, room_h) * 1.02)
        low = np.clip(np.minimum(self._left_h - work_h - room_h, high * 0.98), 0, None)
        self._low, self._wide = low, np.maximum(high - low, 1e-9)
        self._bend = 2 - low / np.maximum(high, 1e-9)
        self._share: Floats = (np.arange(size) / (size - 1)) ** self._bend[:, None]
        self._slack_h = self._low[:, None] + self._wide[:, None] * self._share
        self._rows = list(zip(self._low.tolist(), self._wide.tolist(), self._bend.tolist(), strict=True))
        self.work_h = (self._left_h[:, None] - self._slack_h).astype(np.float32)
        self.ends_done = (high >= self._left_h).tolist()
        """By step, whether the last value of slack is that of no work left."""

    def cell(self, step: int, slack_h: float) -> tuple[int, float]:
        """(number of the value of slack below, share of the next one)."""
        low, wide, bend = self._rows[step]
        last = self.size - 1
        along = min(max((slack_h - low) / wide, 0.0), 1.0)
        j = min(int(along ** (1 / bend) * last), last - 1)
        below, above = (j / last) ** bend, ((j + 1) / last) ** bend
        return j, min(max((along - below) / (above - below), 0.0), 1.0)

    def after_step(self, hours: Sequence[float]) -> _Less:
        """With so many hours less slack, a step later: the values there of the values here."""
        level = (self._low[1:] == self._low[:-1]) & (self._wide[1:] == self._wide[:-1])
        return self._less(np.array(hours), slice(0, -1), level, self._left_h[:-1] - 1e-6)

    def at_once(self, hours: Sequence[float]) -> _Less:
        """The same without a step."""
        every = np.ones(len(self._left_h) - 1, np.bool_)
        return self._less(np.array(hours), slice(1, None), every, np.full(len(every), np.inf))

    def _less(self, hours: Floats, steps: slice, level: NDArray[np.bool_], done_h: Floats) -> _Less:
        """`steps` of the values there, `level`: whether they lie at the same values of slack as those here, and
        `done_h`: the slack from which on no work is left there."""
        amounts, number = np.unique(hours, return_inverse=True)  # machines that are equally fast differ in nothing
        low, wide, bend = (each[steps, None, None] for each in (self._low, self._wide, self._bend))
        slack_h = self._slack_h[1:, None] - amounts[:, None]
        along = np.clip((slack_h - low) / wide, 0, 1)
        last = self.size - 1
        j = np.minimum((along ** (1 / bend) * last).astype(np.intp), last - 1)
        share, step = self._share[steps], np.arange(len(slack_h))[:, None, None]
        more = np.clip((along - share[step, j]) / (share[step, j + 1] - share[step, j]), 0, 1)
        same = level[:, None, None] & (amounts == 0.0)[:, None]
        j, share_above = np.where(same, np.arange(self.size), j), np.where(same, 0.0, more).astype(np.float32)
        late, done = slack_h < -1e-9, slack_h >= done_h[:, None, None]
        return _Less(j[:, number], share_above[:, number], late[:, number], done[:, number])


class _Less:
    """Values over (rows, amounts, slack) at one step -> values by the slack from which they are reached, if that is
    less by each of the amounts."""

    def __init__(self, j: NDArray[np.intp], more: Table, late: NDArray[np.bool_], done: NDArray[np.bool_]) -> None:
        """All are over (steps, amounts, slack)."""
        amounts, size = j.shape[1:]
        first = size * np.arange(amounts)[:, None]
        self._below, self._above = first + j, first + np.minimum(j + 1, size - 1)
        self._more, self._late, self._done = more, late, done
        self._any_late: list[bool] = np.asarray(late.any(axis=(1, 2))).tolist()
        self._any_done: list[bool] = np.asarray(done.any(axis=(1, 2))).tolist()
        moves = late | done | (more > 0) | (j != np.arange(size))
        self._still: list[bool] = np.asarray(~moves.any(axis=(1, 2))).tolist()

    def __call__(self, step: int, values: Table) -> Table:
        row = step - 1
        if self._still[row]:
            return values
        flat = values.reshape(len(values), -1)
        moved: Table = flat.take(self._below[row], axis=1)
        above: Table = flat.take(self._above[row], axis=1)
        above -= moved
        above *= self._more[row]
        moved += above
        if self._any_late[row]:
            np.copyto(moved, TOO_LATE, where=self._late[row])
        if self._any_done[row]:
            np.copyto(moved, 0, where=self._done[row])
        return moved


def _bills(work_h: Table, step_usd: Table, step_work_h: Table) -> Table:
    """What each step costs, over (steps, machines, slack): less than `step_usd` if its work is less than
    `step_work_h`."""
    bills: Table = step_usd[:, None] * np.clip(work_h[:, None] / step_work_h[:, None], 0, 1)
    return bills


def others(states: Sequence[Floats], number: int) -> list[Floats]:
    """All but one."""
    return [state for each, state in enumerate(states) if each != number]


def joint(states: Sequence[Floats]) -> Floats:
    """Probabilities of the joint states of independent pools; the first pool's state changes slowest."""
    product = np.ones(1)
    for state in states:
        product = np.multiply.outer(product, state).ravel()
    return product


def joint_change(change: Sequence[Floats]) -> Floats:
    """Probabilities of the joint states after a step (column), by those before it (row)."""
    product: Floats = np.ones((1, 1))
    for matrix in change:
        size = len(product) * len(matrix)
        product = (product[:, None, :, None] * matrix[None, :, None, :]).reshape(size, size)  # faster than np.kron
    return product
