"""The value of money: the least expected hours to finish, by work left, money left, what runs and which pools have
capacity.

This is the counterpart of the value of slack (value.py). Waiting costs time but no money, so a budget can always be
kept; what must be avoided is to spend what the rest of the work needs. If its money buys the rest nowhere, a job counts
as taking RUIN times as long as its work.

It is a stochastic dynamic program over the work left, from its end backwards. Prices are constant. Pools change by the
chains of `Spells`, but machines are lost at their mean rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats, Spells
from orchestrator.policy.slack.value import PoolTable, joint, joint_change, others

RUIN = 5.0
"""How many times the hours of its work a job counts as taking if it runs out of money."""
LAYERS, MONEYS, BEND = 64, 40, 1.5
"""The number of steps of work, and of values of money. With a larger BEND, more of the latter are where money is
scarce."""
WAITS_H = (64.0, 32.0, 16.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5)
"""The times for which a job waits before it looks again, in hours: the last one first, then the one before it, and so
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
        return self._at(work_h, money, self._modes[:, :, self._place_of[at]], joint(states))

    def on_demand(self, work_h: float, money: float, states: Sequence[Floats], number: int = 0) -> float:
        """Hours to finish while a machine runs on demand, in the pool with this number among the on-demand pools."""
        return self._at(work_h, money, self._modes[:, :, len(self._places) + 1 + number], joint(states))

    def spot(self, number: int, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish while a machine runs in the spot pool with this number among those considered."""
        return self._at(work_h, money, self._spot[:, number], joint(others(states, number)))

    def lost(self, number: int, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish after the loss of a machine in the spot pool with this number."""
        values = self._modes[:, self._gone[number], self._place_of[self.problem.pools[number]]]
        return self._at(work_h, money, values, joint(others(states, number)))

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
        pool, the others' joint state, money)).

        The modes are: nothing runs and the checkpoint is in each of the places, or nowhere; a machine runs on demand.
        """
        its, grid, count = self.problem, self._grid, len(self.problem.pools)
        step_h = [self._layer_h / speed for speed in its.speed]
        lost = [
            float(spells.mature(pool) @ spells.survival(pool, hours)[:-1, -1])
            for pool, hours in zip(its.pools, step_h, strict=True)
        ]
        bought_h = [self._layer_h / speed for speed in its.on_demand_speed]

        def change(hours: float, besides: int | None = None) -> Table:
            """Probabilities of the joint states after some hours (column), of all pools or `besides` one."""
            each = [spells.step(pool, hours) for i, pool in enumerate(its.pools) if i != besides]
            return joint_change(each).astype(np.float32)

        rest = [change(hours, i) for i, hours in enumerate(step_h)]
        bought, waits = [change(hours) for hours in bought_h], {hours: change(hours) for hours in WAITS_H}
        egress = np.array([[its.egress_usd[a][b] for b in places] for a in places] + [[0.0] * len(places)])
        ran = [grid.less(usd * hours, 1) for usd, hours in zip(its.spot_usd, step_h, strict=True)]
        rented = [grid.less(usd * hours, 1) for usd, hours in zip(its.on_demand_usd, bought_h, strict=True)]

        def ways(pool: int, usd: float) -> list[tuple[NDArray[np.intp], _Less]]:
            """How to get there: (the modes from which it costs as much, what it costs)."""
            column = egress[:, self._place_of[pool]]
            return [
                (np.flatnonzero(column == each), grid.less(usd * its.restart_h + each, 0)) for each in np.unique(column)
            ]

        to_spot = [ways(pool, usd) for pool, usd in zip(its.pools, its.spot_usd, strict=True)]
        to_bought = [ways(pool, usd) for pool, usd in zip(its.on_demand_pools, its.on_demand_usd, strict=True)]
        nowhere, states = len(places) + 1, spells.phases**count
        modes = np.zeros((LAYERS + 1, states, nowhere + len(bought_h), MONEYS), np.float32)
        spot = np.zeros((LAYERS + 1, count, states // spells.phases, MONEYS), np.float32)
        spot_at, bought_at = ([self._place_of[pool] for pool in pools] for pools in (its.pools, its.on_demand_pools))
        ruin_h = np.float32(self.ruin_h)
        for k in range(1, LAYERS + 1):
            best = np.full((states, nowhere, MONEYS), ruin_h, np.float32)
            go_on = []
            for j, hours in enumerate(bought_h):
                ahead = bought[j] @ modes[k - 1, :, nowhere + j]
                go_on.append(np.minimum(rented[j](k, ahead, ruin_h) + np.float32(hours), ruin_h))
                for froms, way in to_bought[j]:
                    there = np.minimum(way(k, go_on[-1], ruin_h) + np.float32(its.restart_h), ruin_h)
                    best[:, froms] = np.minimum(best[:, froms], there[:, None])
            stays = []
            for i, hours in enumerate(step_h):
                gone = modes[k - 1, self._gone[i], spot_at[i]]
                ahead = rest[i] @ ((1 - lost[i]) * spot[k - 1, i] + lost[i] * gone).astype(np.float32)
                stays.append(np.minimum(ran[i](k, ahead, ruin_h) + np.float32(hours), ruin_h))
                for froms, way in to_spot[i]:
                    there = np.minimum(way(k, stays[-1], ruin_h) + np.float32(its.restart_h), ruin_h)
                    cells = np.ix_(self._present[i], froms)
                    best[cells] = np.minimum(best[cells], there[:, None])
            at_once = best
            for hours in WAITS_H:
                later = (waits[hours] @ best.reshape(states, -1)).reshape(best.shape) + np.float32(hours)
                best = np.minimum(at_once, later)
            modes[k, :, :nowhere] = best
            for j, each in enumerate(go_on):
                modes[k, :, nowhere + j] = np.minimum(each, best[:, bought_at[j]])
            for i, each in enumerate(stays):
                spot[k, i] = np.minimum(each, best[self._present[i], spot_at[i]])
        return modes, spot


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
        """(index of the value of money below, fraction of the way to the next one); (-1, 0) if the money buys the rest
        nowhere."""
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
