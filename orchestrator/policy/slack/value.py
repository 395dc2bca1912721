"""The value table: the least expected cost to finish, by time left, slack, what runs and which pools have capacity.

Slack is the time left, minus the work left and the rest of the present restart, both on the fastest on-demand machine.
Waiting uses up slack, and so do restarts and slower machines. Without slack, the rest must run on that machine; work
that would end too late costs TOO_LATE. Machines cost their price for as long as they are used.

It is a stochastic dynamic program from the deadline backwards. At each step, the pools change by the chains of
`Spells`. Then the cheapest action is taken, knowing which pools have capacity: a failed launch is free, so this can
always be found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.grid import TOO_LATE, Grid, Table, bills
from orchestrator.policy.slack.long_steps import LongSteps, within
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats, Spells

STEPS, SLACKS = 96, 40
"""With several pools: the least number of time steps, and the number of values of slack."""
STEPS_ALONE, SLACKS_ALONE = 160, 64
"""The same with one pool, which has few states."""
LONGEST_STEP_H, MOST_STEPS, MOST_STEPS_ALONE = 0.5, 192, 1600
"""The longest step (hours), and the most steps, with several pools and with one. Steps are longer only if there would
be too many: with longer steps, a spell shorter than a step counts as the loss of a whole step."""


class PoolTable:
    """The base of the tables of a Problem: the places that they know, and the numbering of the pools' joint states."""

    def __init__(self, problem: Problem, spells: Spells) -> None:
        self.problem = problem
        here = () if problem.at is None else (problem.at,)
        named = sorted({*problem.pools, *problem.on_demand_pools, *here})
        # Pools with the same egress prices, such as those of a region, share a place, which is that of the first.
        egress = problem.egress_usd[np.ix_(named, named)]
        first: dict[bytes, int] = {}
        alike = [first.setdefault(each.tobytes(), len(first)) for each in np.concatenate([egress, egress.T], axis=1)]
        self._places = [named[alike.index(place)] for place in range(len(first))]
        self._place_of: dict[int | None, int] = dict(zip(named, alike, strict=True))
        self._place_of[None] = len(self._places)
        numbers = np.arange(spells.phases ** len(problem.pools)).reshape((spells.phases,) * len(problem.pools))
        # For each pool, by the others' states: the joint states in which it has capacity, or has just lost it.
        self._present = np.array([np.take(numbers, spells.away, axis=i).ravel() for i in range(len(problem.pools))])
        self._gone = np.array([np.take(numbers, 0, axis=i).ravel() for i in range(len(problem.pools))])

    def knows(self, place: int | None) -> bool:
        """Whether the table considers a checkpoint at this place."""
        return place in self._place_of


class ValueTable(PoolTable):
    """The solution of a Problem. `spells` are read only when the table is made.

    In all methods, `states` are the probabilities of each considered pool's state (see Spells); pools are independent.
    Costs are in the unit of the problem's prices.
    """

    def __init__(self, problem: Problem, spells: Spells, steps: int | None = None) -> None:
        """`steps`: how many, but at most one for each tick; by default, as many as LONGEST_STEP_H implies."""
        super().__init__(problem, spells)
        alone = len(problem.pools) == 1
        least, most = (STEPS_ALONE, MOST_STEPS_ALONE) if alone else (STEPS, MOST_STEPS)
        wanted = min(max(least, round(problem.hours_left / LONGEST_STEP_H)), most)
        self._steps = max(2, min(steps or wanted, round(problem.hours_left / problem.tick_h)))
        self._step_h = problem.hours_left / self._steps
        self._grid = Grid(problem, self._steps, SLACKS_ALONE if alone else SLACKS)
        self._idle, self._bought, self._spot = self._solved(spells, self._places)

    def waiting(self, at: int | None, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """The cost to finish if nothing runs and the checkpoint is in the pool `at`."""
        return self._at(hours_left, slack_h, self._idle[:, -1, self._place_of[at]], joint(states))

    def on_demand(self, hours_left: float, slack_h: float, states: Sequence[Floats], number: int = 0) -> float:
        """The cost to finish while a machine runs on demand, in the pool with this number among the on-demand pools."""
        return self._at(hours_left, slack_h, self._bought[:, number], joint(states))

    def spot(self, number: int, phase: Floats, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """The cost to finish while a machine runs in the spot pool with this number among those considered. `phase` are
        the probabilities of the machine's phases."""
        weights = joint([phase, *others(states, number)])
        return self._at(hours_left, slack_h, self._spot[:, number], weights)

    def lost(self, number: int, hours_left: float, slack_h: float, states: Sequence[Floats]) -> float:
        """The cost to finish after the loss of a machine in the spot pool with this number."""
        place = self._place_of[self.problem.pools[number]]
        rows = self._idle[:, 0, place]
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

    def _found(self, every: Table) -> Table:
        """What a waiting job finds after a step, by the joint state now (row).

        The columns are the probabilities of the joint states then and, after these, for each pool, of the states in
        which the capacity that the job awaited is back. The job awaits the cheapest pool without capacity.
        """
        its, states = self.problem, len(every)
        back = states + np.arange(self._present.size).reshape(self._present.shape)
        found = np.concatenate([every, np.zeros((states, self._present.size), np.float32)], axis=1)
        nothing = np.ones(states, np.bool_)
        for number in sorted(range(len(its.pools)), key=lambda each: its.spot_usd[each] / its.speed[each]):
            there = self._present[number]
            awaits = nothing.copy()
            awaits[there] = False
            rows = np.flatnonzero(awaits)[:, None]
            found[rows, back[number]] = every[rows, there]
            found[rows, there] = 0
            nothing &= ~awaits
        return found

    def _solved(self, spells: Spells, places: Sequence[int]) -> tuple[Table, Table, Table]:
        """(values while nothing runs, over (step, kind, place, joint state, slack); values on demand, over (step,
        on-demand pool, joint state, slack); values on spot, over (step, pool, the machine's phase and the others' joint
        state, slack)).

        The places are those of the checkpoint; the last one is nowhere. Of the first kind are values at a random
        moment, when capacity has the age that it has on average. If machines age, there is a second kind: a job that
        waits finds capacity that has just returned, so that its machine would be young. If the job waits for another
        step and the capacity is still there, it is older.
        """
        its, grid, step_h = self.problem, self._grid, self._step_h
        count, size = len(its.pools), grid.size
        change = [spells.step(pool, step_h) for pool in its.pools]
        every = joint_change(change).astype(np.float32)
        rest = np.stack([joint_change(change[:i] + change[i + 1 :]) for i in range(count)]).astype(np.float32)
        survive = np.stack([spells.survival(pool, step_h)[:-1] for pool in its.pools]).astype(np.float32)
        keep, lose = survive[:, :, :-1], survive[:, :, -1:]
        fresh = np.stack([spells.mature(pool) for pool in its.pools]).astype(np.float32)[:, :, None, None]
        paces = np.array(its.speed), np.array(its.on_demand_speed)
        waited, ran, rented = grid.after_step(np.array([step_h]), *(step_h * (1 - pace) for pace in paces))
        # A restart counts as work at the machine's pace: as restart_h x pace hours of the fastest machine.
        launched, bought = grid.at_once(*(its.restart_h * pace for pace in paces))
        bill, bought_bill = (
            bills(grid.work_h, *((np.array(each) * step_h).astype(np.float32) for each in (usd, speed)))[:, :, None]
            for usd, speed in ((its.spot_usd, its.speed), (its.on_demand_usd, its.on_demand_speed))
        )
        egress = np.array([[its.egress_usd[a][b] for b in places] for a in places] + [[0.0] * len(places)], np.float32)
        bought_at, spot_at = (
            np.array([self._place_of[pool] for pool in pools]) for pools in (its.on_demand_pools, its.pools)
        )
        # Going to any machine of a place costs the same.
        machines = [*spot_at.tolist(), *bought_at.tolist()]
        reached = [
            ([number for number, at in enumerate(machines) if at == place], egress[:, place, None, None])
            for place in sorted({*machines})
        ]
        states, wheres, besides, ages = len(every), len(places) + 1, rest.shape[-1], spells.ages
        kinds = 2 if ages > 1 else 1
        # Rows over (place, joint state), for each pool by the others' states: the checkpoint is there, and the pool has
        # capacity (present) or has just lost it (gone).
        present, gone = (each + states * spot_at[:, None] for each in (self._present, self._gone))
        # Giving up a machine must not yield an older one in the same pool: if machines age, the pool counts as empty.
        left = gone if ages > 1 else present
        begins = self._present + states * np.arange(count)[:, None]
        idle = np.zeros((self._steps + 1, kinds, wheres, states, size), np.float32)
        on_demand = np.zeros((self._steps + 1, len(bought_at), states, size), np.float32)
        spot = np.zeros((self._steps + 1, count, ages, besides, size), np.float32)
        begun = np.full((kinds, len(machines), states, size), np.inf, np.float32)  # a machine that has just started
        begun_rows = begun.reshape(kinds, -1, size)
        numbers = np.arange(states)
        returned = (numbers & ~numbers[:, None]) > 0  # whether a pool is empty now (row), but not then (column)
        as_before, renewed = every * ~returned, every * returned
        constant = [spells.constant(pool) for pool in its.pools]
        steady = [within(*rates, step_h) for rates in constant if rates is not None]
        long = LongSteps(its, grid, step_h, steady) if len(steady) == count else None
        if long is not None:
            found, way_there = self._found(every), egress[:, spot_at, None, None]
            outcomes = np.empty((wheres, found.shape[1], size), np.float32)
            ended, back = outcomes[:, :states], outcomes[:, states:].reshape(wheres, count, besides, size)
        restart_usd = min(*its.spot_usd, *its.on_demand_usd) * its.restart_h
        for k in range(1, self._steps + 1):
            before, best = idle[k - 1], idle[k]
            rows = before[0].reshape(-1, size)
            running, lost = rest[:, None] @ spot[k - 1], rest @ rows.take(gone, axis=0)
            ahead = keep @ running.reshape(count, ages, -1)
            ahead += lose * lost.reshape(count, 1, -1)
            stay = ran(k, ahead.reshape(count, -1, size)) + bill[k]
            if long is not None:
                np.minimum(stay, long.stay(k, running[:, 0], lost), out=stay)
            np.minimum(stay, TOO_LATE, out=stay)
            on_spot = stay.reshape(count, ages, besides, size)
            go_on = np.minimum(rented(k, every @ on_demand[k - 1]) + bought_bill[k], TOO_LATE)
            begun_rows[0, begins] = launched(k, on_spot[:, 0] if ages == 1 else (fresh * on_spot).sum(axis=1))
            begun[:, count:] = bought(k, go_on)
            if ages > 1:
                begun_rows[1, begins] = launched(k, on_spot[:, 0])
                best[:] = waited(k, as_before @ before[0] + renewed @ before[1])
            elif long is None:
                best[:] = waited(k, every @ before[0])
            else:
                ended[:] = waited(k, before[0])
                awaited = long.back(k, rows.take(present, axis=0)) + way_there
                np.minimum(ended[:, self._present], awaited, out=back)
                np.matmul(found, outcomes, out=best[0])
            for (first, *more), way in reached:
                least = begun[:, first]
                for number in more:
                    least = np.minimum(least, begun[:, number])
                np.minimum(best, least[:, None] + way, out=best)
            if grid.ends_done[k]:  # all work that is left there needs at least a restart
                best[..., -1] = restart_usd
            np.minimum(go_on, best[0, bought_at], out=on_demand[k])
            np.minimum(on_spot, best[0].reshape(-1, size).take(left, axis=0)[:, None], out=spot[k])
        return idle, on_demand, spot.reshape(self._steps + 1, count, -1, size)


def others(states: Sequence[Floats], number: int) -> list[Floats]:
    """All states but that of the pool with this number."""
    return [state for each, state in enumerate(states) if each != number]


def joint(states: Sequence[Floats]) -> Floats:
    """Probabilities of the joint states of independent pools; the first pool's state changes slowest."""
    if not states:
        return np.ones(1)
    product, *more = states
    for state in more:
        product = (product[:, None] * state).ravel()
    return product


def joint_change(change: Sequence[Floats]) -> Floats:
    """Transition probabilities of the joint state over a step: from the state before (row) to the state after
    (column)."""
    product: Floats = np.ones((1, 1))
    for matrix in change:
        size = len(product) * len(matrix)
        product = (product[:, None, :, None] * matrix[None, :, None, :]).reshape(size, size)  # faster than np.kron
    return product
