"""The value of money: the least expected hours to finish, by work left, money left, what runs and which pools have
capacity.

This is the counterpart of the value of slack (value.py). Waiting costs time but no money, so a budget can always be
kept; the planner must not spend the money that the rest of the work needs. If a job's money pays for the rest on no
machine, the job counts as taking RUIN times as long as its work.

It is a stochastic dynamic program over the work left, from its end backwards. Prices are constant; pools change by the
chains of `Spells`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats, Spells
from orchestrator.policy.slack.value import PoolTable, joint, joint_change, others

RUIN = 40.0
"""How many times the hours of its work a job counts as taking if it runs out of money."""
LAYERS, MONEYS, BEND = 64, 40, 1.5
"""The number of steps of work, and of values of money. With a larger BEND, more of the latter are where money is
scarce."""
WAITS_H = (64.0, 32.0, 16.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5)
"""The times for which a job waits before it checks again, in hours: the last one first, then the one before it, and so
on."""
Table = NDArray[np.float32]


class MoneyTable(PoolTable):
    """The solution of a Problem without its deadline. Money is in the problem's unit.

    In all methods, `states` are the probabilities of each considered pool's state; pools are independent.
    """

    def __init__(self, problem: Problem, spells: Spells) -> None:
        super().__init__(problem, spells)
        work_h = problem.hours_left - problem.slack_h
        self.ruin_h = RUIN * (work_h + problem.restart_h)
        self._layer_h = work_h / LAYERS
        self._grid = _Grid(problem, self._layer_h)
        self._modes, self._spot = self._solved(spells, self._places)

    def waiting(self, at: int | None, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish if nothing runs and the checkpoint is in the pool `at`."""
        found = self._at(work_h, money, self._modes[:, :, self._place_of[at]], joint(states))
        return min(found, self._surely(at, work_h, money))

    def on_demand(
        self, work_h: float, money: float, states: Sequence[Floats], number: int = 0, overhead_h: float = 0.0
    ) -> float:
        """Hours to finish while a machine runs on demand, in the pool with this number among the on-demand pools, and
        trains after `overhead_h`."""
        usd, hours = self.problem.on_demand_usd[number], overhead_h + work_h / self.problem.on_demand_speed[number]
        if self._bill(usd, hours) <= money:
            return hours
        mode = self._modes[:, :, len(self._places) + 1 + number]
        return overhead_h + self._at(work_h, money - usd * overhead_h, mode, joint(states))

    def spot(self, number: int, phase: Floats, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish while a machine runs in the spot pool with this number among those considered. `phase` are
        the probabilities of the machine's phases."""
        found = self._at(work_h, money, self._spot[:, number], joint([phase, *others(states, number)]))
        return min(found, self._surely(self.problem.pools[number], work_h, money))

    def lost(self, number: int, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish after the loss of a machine in the spot pool with this number."""
        values = self._modes[:, self._gone[number], self._place_of[self.problem.pools[number]]]
        found = self._at(work_h, money, values, joint(others(states, number)))
        return min(found, self._surely(self.problem.pools[number], work_h, money))

    def _surely(self, at: int | None, work_h: float, money: float) -> float:
        """The least hours to finish on a machine that is rented on demand now and kept; infinite if the money does not
        pay for any. The table, between whose values of money there is this one, may know it only roughly."""
        its, least_h = self.problem, math.inf
        for pool, usd, speed in zip(its.on_demand_pools, its.on_demand_usd, its.on_demand_speed, strict=True):
            hours = its.restart_h + work_h / speed
            egress = 0.0 if at is None else float(its.egress_usd[at][pool])
            if hours < least_h and self._bill(usd, hours) + egress <= money:
                least_h = hours
        return least_h

    def _bill(self, usd: float, hours: float) -> float:
        """What a machine costs whose price is `usd` per hour. Whole ticks are billed."""
        return usd * self.problem.tick_h * math.ceil(hours / self.problem.tick_h - 1e-9)

    def _at(self, work_h: float, money: float, values: Table, weights: Floats) -> float:
        """The expectation over the rows of values[layer, row, money], interpolated in work and money."""
        if work_h <= 1e-9:
            return 0.0 if money >= 0 else self.ruin_h
        along = min(work_h / self._layer_h, float(LAYERS))
        k = min(int(along), LAYERS - 1)
        more = along - k
        # Both layers are read at the same money per hour of work.
        hours = 0.0
        for layer, share in ((k, 1 - more), (k + 1, more)):
            if share > 0 and layer > 0:
                j, above = self._grid.cell(layer, money * layer / along)
                if j < 0:
                    return self.ruin_h
                low, high = (weights @ values[layer, :, j : j + 2]).tolist()
                hours += share * (low + (high - low) * above)
        return float(hours)

    def _solved(self, spells: Spells, places: Sequence[int]) -> tuple[Table, Table]:
        """(values while no spot machine runs, over (layer, joint state, mode, money); values on spot, over (layer,
        pool, the machine's phase and the others' joint state, money)).

        The modes are: nothing runs and the checkpoint is in each of the places, or nowhere; a machine runs on demand.
        If machines age, a machine that starts has the age that capacity has on average; after a wait for its capacity,
        it is young. A pool whose machine the job leaves counts as empty, because a new machine there would not be
        older.
        """
        its, grid, count = self.problem, self._grid, len(self.problem.pools)
        step_h = [self._layer_h / speed for speed in its.speed]
        survive = [
            spells.survival(pool, hours)[:-1].astype(np.float32) for pool, hours in zip(its.pools, step_h, strict=True)
        ]
        fresh = [spells.mature(pool).astype(np.float32)[:, None, None] for pool in its.pools]
        bought_h = [self._layer_h / speed for speed in its.on_demand_speed]

        def change(hours: float, besides: int | None = None) -> Table:
            """Probabilities of the joint states after some hours (column), of all pools or `besides` one."""
            each = [spells.step(pool, hours) for i, pool in enumerate(its.pools) if i != besides]
            return joint_change(each).astype(np.float32)

        rest = [change(hours, i) for i, hours in enumerate(step_h)]
        bought = [change(hours) for hours in bought_h]
        egress = np.array([[its.egress_usd[a][b] for b in places] for a in places] + [[0.0] * len(places)])
        ran = [grid.less(usd * hours, 1) for usd, hours in zip(its.spot_usd, step_h, strict=True)]
        rented = [grid.less(usd * hours, 1) for usd, hours in zip(its.on_demand_usd, bought_h, strict=True)]

        def ways(pool: int, usd: float) -> list[tuple[NDArray[np.intp], _Less]]:
            """How to get there: (the modes from which it costs as much, what it costs)."""
            column = egress[:, self._place_of[pool]]
            return [
                (np.flatnonzero(column == each), grid.less(usd * its.restart_h + each, 0)) for each in np.unique(column)
            ]

        to_bought = [ways(pool, usd) for pool, usd in zip(its.on_demand_pools, its.on_demand_usd, strict=True)]
        nowhere, states, ages = len(places) + 1, spells.phases**count, spells.ages
        kinds, left = (2, self._gone) if ages > 1 else (1, self._present)
        to_spot = [
            [(np.ix_(np.arange(kinds), there, froms), way) for froms, way in ways(pool, usd)]
            for pool, usd, there in zip(its.pools, its.spot_usd, self._present, strict=True)
        ]
        numbers = np.arange(states)
        returned = (numbers & ~numbers[:, None]) > 0  # whether a pool is empty now (row), but not then (column)
        waits = {
            hours: every if kinds == 1 else np.concatenate([every * ~returned, every * returned], axis=1)
            for hours, every in ((hours, change(hours)) for hours in dict.fromkeys(WAITS_H))
        }
        modes = np.zeros((LAYERS + 1, states, nowhere + len(bought_h), MONEYS), np.float32)
        spot = np.zeros((LAYERS + 1, count, ages, states // spells.phases, MONEYS), np.float32)
        spot_at, bought_at = ([self._place_of[pool] for pool in pools] for pools in (its.pools, its.on_demand_pools))
        ruin_h = np.float32(self.ruin_h)
        for k in range(1, LAYERS + 1):
            at_once = np.full((kinds, states, nowhere, MONEYS), ruin_h, np.float32)
            go_on = []
            for j, hours in enumerate(bought_h):
                ahead = bought[j] @ modes[k - 1, :, nowhere + j]
                go_on.append(np.minimum(rented[j](k, ahead, ruin_h) + np.float32(hours), ruin_h))
                for froms, way in to_bought[j]:
                    there = np.minimum(way(k, go_on[-1], ruin_h) + np.float32(its.restart_h), ruin_h)
                    at_once[:, :, froms] = np.minimum(at_once[:, :, froms], there[:, None])
            stays = []
            for i, hours in enumerate(step_h):
                gone = modes[k - 1, self._gone[i], spot_at[i]]
                kept = (survive[i][:, :-1] @ spot[k - 1, i].reshape(ages, -1)).reshape(ages, -1, MONEYS)
                kept += survive[i][:, -1:, None] * gone
                stays.append(np.minimum(ran[i](k, rest[i] @ kept, ruin_h) + np.float32(hours), ruin_h))
                started = np.array([(fresh[i] * stays[-1]).sum(axis=0), stays[-1][0]][:kinds])
                for cells, way in to_spot[i]:
                    there = np.minimum(way(k, started, ruin_h) + np.float32(its.restart_h), ruin_h)
                    at_once[cells] = np.minimum(at_once[cells], there[:, :, None])
            best = at_once
            for hours in WAITS_H:
                later = waits[hours] @ best.reshape(kinds * states, -1) + np.float32(hours)
                best = np.minimum(at_once, later.reshape(at_once.shape[1:]))
            modes[k, :, :nowhere] = best[0]
            for j, each in enumerate(go_on):
                modes[k, :, nowhere + j] = np.minimum(each, best[0, :, bought_at[j]])
            for i, each in enumerate(stays):
                spot[k, i] = np.minimum(each, best[0, left[i], spot_at[i]])
        return modes, spot.reshape(LAYERS + 1, count, -1, MONEYS)


class _Grid:
    """The values of money at each layer.

    They range from what the work left costs on the cheapest machine to what it costs on demand with a few restarts;
    more money than that makes no difference.
    """

    def __init__(self, problem: Problem, layer_h: float) -> None:
        spot = [usd / speed for usd, speed in zip(problem.spot_usd, problem.speed, strict=True)]
        bought = [usd / speed for usd, speed in zip(problem.on_demand_usd, problem.on_demand_speed, strict=True)]
        work_h = np.arange(LAYERS + 1) * layer_h
        restarts = 2 * max(problem.on_demand_usd) * problem.restart_h + float(problem.egress_usd.max(initial=0.0))
        self._low = min(*spot, *bought) * work_h
        self._wide = np.maximum(max(bought) * work_h + restarts - self._low, 1e-9)
        self._money = self._low[:, None] + self._wide[:, None] * (np.arange(MONEYS) / (MONEYS - 1)) ** BEND
        self._rows = list(zip(self._low.tolist(), self._wide.tolist(), strict=True))

    def cell(self, layer: int, money: float) -> tuple[int, float]:
        """(index of the value of money below, fraction of the way to the next one); (-1, 0) if the money does not pay
        for the rest on any machine."""
        low, wide = self._rows[layer]
        along = (money - low) / wide
        if along < -1e-9:
            return -1, 0.0
        at = min(max(along, 0.0), 1.0) ** (1 / BEND) * (MONEYS - 1)
        j = min(int(at), MONEYS - 2)
        return j, at - j

    def less(self, money: float, layers: int) -> _Less:
        """A _Less that gives the values at each layer from those with `money` less, `layers` layers of work later."""
        left = self._money[1:] - money
        low, wide = (each[1 - layers : len(each) - layers, None] for each in (self._low, self._wide))
        along = (left - low) / wide
        at = np.clip(along, 0, 1) ** (1 / BEND) * (MONEYS - 1)
        j = np.minimum(at.astype(np.intp), MONEYS - 2)
        return _Less(j, (at - j).astype(np.float32), along < -1e-6)


class _Less:
    """Shifts values over money at one layer to the values by the money from which they are reached."""

    def __init__(self, j: NDArray[np.intp], more: Floats, ruined: NDArray[np.bool_]) -> None:
        self._below, self._above, self._more, self._ruined = j, j + 1, more, ruined
        self._any_ruined: list[bool] = np.asarray(ruined.any(axis=1)).tolist()

    def __call__(self, layer: int, values: Table, ruin_h: np.float32) -> Table:
        row = layer - 1
        moved: Table = values.take(self._below[row], axis=-1)
        moved += (values.take(self._above[row], axis=-1) - moved) * self._more[row]
        if self._any_ruined[row]:
            moved[..., self._ruined[row]] = ruin_h
        return moved
