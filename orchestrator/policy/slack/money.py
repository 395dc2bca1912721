"""The value of money: the least expected hours to finish, by work left, money left, what runs and which pools have
capacity.

The counterpart of the value of slack (value.py). Waiting costs time and no money, so that a budget can always be kept;
what must be avoided is to spend what the rest needs. A job whose money buys the rest nowhere is counted as taking RUIN
times as long as its work.

A stochastic dynamic program over the work left, from its end backwards. Prices stay as they are, and pools come and go
by the chains of `Spells`, but machines by their mean rate of losses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats, Spells
from orchestrator.policy.slack.value import PoolTable, joint, joint_change, others

RUIN = 5.0
"""How many times the hours of work a job counts as taking that runs out of money."""
LAYERS, MONEYS, BEND = 64, 40, 1.5
"""The numbers of steps of work and of money. With a larger BEND, more of the latter lie where money is scarce."""
WAITS_H = (64.0, 32.0, 16.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5)
"""How long a job waits before it looks again: the last of these first."""
Table = NDArray[np.float32]


class MoneyTable(PoolTable):
    """The solution of a Problem without its deadline. Money is in the problem's unit.

    Wherever it is asked, `states` are the probabilities of each considered pool's state, independent of each other.
    """

    def __init__(self, problem: Problem, spells: Spells) -> None:
        super().__init__(problem, spells)
        work_h = problem.hours_left - problem.slack_h
        self.ruin_h = RUIN * (work_h + problem.restart_h)
        self._layer_h = work_h / LAYERS
        self._grid = _Grid(problem, self._layer_h)
        self._modes, self._spot = self._solved(spells, self._places)

    def waiting(self, at: int | None, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish if nothing runs, with the checkpoint in a pool."""
        return self._at(work_h, money, self._modes[:, :, self._place_of[at]], joint(states))

    def on_demand(self, work_h: float, money: float, states: Sequence[Floats], number: int = 0) -> float:
        """Hours to finish while it runs on demand, in the pool with this number among those on demand."""
        return self._at(work_h, money, self._modes[:, :, len(self._places) + 1 + number], joint(states))

    def spot(self, number: int, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish while it runs in the spot pool with this number among those considered."""
        return self._at(work_h, money, self._spot[:, number], joint(others(states, number)))

    def lost(self, number: int, work_h: float, money: float, states: Sequence[Floats]) -> float:
        """Hours to finish after the loss of a machine there."""
        values = self._modes[:, self._gone[number], self._place_of[self.problem.pools[number]]]
        return self._at(work_h, money, values, joint(others(states, number)))

    def _at(self, work_h: float, money: float, values: Table, weights: Floats) -> float:
        """The expectation over the rows of values[layer, row, money], interpolated in work and money."""
        if work_h <= 1e-9:
            return 0.0 if money >= 0 else self.ruin_h
        along = min(work_h / self._layer_h, float(LAYERS))
        k = min(int(along), LAYERS - 1)
        more = along - k
        # The same money per hour of work is asked of both layers.
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
        """(values while no spot machine runs, over (layer, joint state, mode, money), where the modes are the places of
        the checkpoint, nowhere, and on demand; values on spot, over (layer, pool, the others' joint state, money))."""
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
    """The values of money at each layer: from what the work left costs on the cheapest machine to what it costs on
    demand with a few restarts, beyond which more buys nothing."""

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
        """(number of the value of money below, share of the next one); (-1, 0) if the money buys the rest nowhere."""
        low, wide = self._rows[layer]
        along = (money - low) / wide
        if along < -1e-9:
            return -1, 0.0
        at = min(max(along, 0.0), 1.0) ** (1 / BEND) * (MONEYS - 1)
        j = min(int(at), MONEYS - 2)
        return j, at - j

    def less(self, money: float, layers: int) -> _Less:
        """With so much less money, and so many layers of work less: the values there of the values here."""
        left = self._money[1:] - money
        low, wide = (each[1 - layers : len(each) - layers, None] for each in (self._low, self._wide))
        along = (left - low) / wide
        at = np.clip(along, 0, 1) ** (1 / BEND) * (MONEYS - 1)
        j = np.minimum(at.astype(np.intp), MONEYS - 2)
        return _Less(j, (at - j).astype(np.float32), along < -1e-6)


class _Less:
    """Values over money at one layer -> values by the money from which they are reached."""

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
