"""The clairvoyant optimum of one job: an exact dynamic program that sees all prices and all capacity.

    run[t, s, w]     cheapest way to do w from tick t on, with an instance s = (zone, kind) past its overhead
    none[t, z, w]    the same with nothing running and the checkpoint in zone z

A launch is one step of `m` ticks, those of the overhead: giving up an instance that has made no progress yet never
pays, but as a detour for egress, and egress prices are first closed over detours. Work is counted in the greatest
common divisor of tick and overhead, in which every reachable amount of work is a whole number.

Runs backwards over ticks, all work amounts at once. Must not know: policies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.sim.arena.ticks import Task
from orchestrator.sim.arena.traces import Window

Floats = NDArray[np.float64]

MAX_UNITS = 60_000


@dataclass(frozen=True, slots=True)
class Optimum:
    """US$ per instance. Not `exact`: a lower bound, because the overhead was rounded down to a coarser unit."""

    usd: float
    exact: bool


def optimum(task: Task, window: Window, *, on_demand: bool = True, max_units: int = MAX_UNITS) -> Optimum:
    """The least that the job could have cost under the tick rules. `on_demand`: whether it may be used.

    usd is infinite when nothing could have finished in time (only without on-demand).
    """
    tick_ms = window.tick_ms
    unit, overhead_ms, exact = _unit(task, tick_ms, max_units)
    step = tick_ms // unit
    work = -(-task.work_ms // unit)
    boot = max(-(-overhead_ms // tick_ms), 1)  # ticks of a launch
    gained = boot * step - overhead_ms // unit
    places = _places(window, on_demand)
    egress = task.checkpoint_gb * _closed(window.egress)
    return Optimum(_solve(task.ticks, work, step, boot, gained, places, egress), exact)


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Rows of instances: zone, whether it is up, price per tick; on-demand zones that are alike only once."""

    zone: NDArray[np.int64]
    up: NDArray[np.bool_]
    price: Floats


def _unit(task: Task, tick_ms: int, max_units: int) -> tuple[int, int, bool]:
    """(unit, overhead, whether they are exact): a coarser unit divides the tick, and the overhead is rounded down."""
    unit = math.gcd(tick_ms, task.overhead_ms)
    if -(-task.work_ms // unit) <= max_units:
        return unit, task.overhead_ms, True
    divisors = (d for d in range(1, tick_ms + 1) if tick_ms % d == 0 and -(-task.work_ms // d) <= max_units)
    unit = next(divisors, tick_ms)
    return unit, task.overhead_ms // unit * unit, False


def _closed(egress: Floats) -> Floats:
    """Cheapest egress between zones, detours included: with it the result is a lower bound whatever the prices."""
    closed = egress.copy()
    for via in range(len(closed)):
        closed = np.minimum(closed, closed[:, via : via + 1] + closed[via : via + 1, :])
    np.fill_diagonal(closed, 0.0)
    return closed


def _places(window: Window, on_demand: bool) -> _Places:
    hours = window.tick_ms / 3_600_000
    zone, up, price = list(range(len(window.zones))), [window.up], [window.spot * hours]
    if on_demand:
        alike = {
            (float(window.on_demand[z]), tuple(window.egress[z]), tuple(window.egress[:, z])): z
            for z in reversed(range(len(window.zones)))
        }
        for z in sorted(alike.values()):
            zone.append(z)
            up.append(np.ones((1, window.ticks), np.bool_))
            price.append(np.full((1, window.ticks), window.on_demand[z] * hours))
    return _Places(np.array(zone), np.concatenate(up), np.concatenate(price))


def _solve(ticks: int, work: int, step: int, boot: int, gained: int, places: _Places, egress: Floats) -> float:
    """Column i of every array is i units of work left, less what can't be left any more.

    Only the newest `boot` ticks of `run` are kept. `none` has a row per group of zones with the same egress.
    """
    up, price = places.up[:, :ticks], places.price[:, :ticks]
    # streak[s, t]: a launch at t stays up through its overhead; cost[s, t]: what these ticks cost.
    sums = np.concatenate([np.zeros((len(price), 1)), np.cumsum(price, axis=1)], axis=1)
    ups = np.concatenate([np.zeros((len(up), 1), np.int64), np.cumsum(up, axis=1)], axis=1)
    last = max(ticks - boot + 1, 0)
    streak = ups[:, boot:] - ups[:, :last] == boot
    boot_cost = sums[:, boot:] - sums[:, :last]

    rows_of_egress, group_of = np.unique(np.concatenate([egress, egress.T], axis=1), axis=0, return_inverse=True)
    group_of = group_of.ravel()
    heads = [int(np.flatnonzero(group_of == g)[0]) for g in range(len(rows_of_egress))]
    between = egress[np.ix_(heads, heads)]
    members = [np.flatnonzero(group_of[places.zone] == g) for g in range(len(heads))]
    group_of_place = group_of[places.zone]

    size = work + 1
    run = np.full((len(places.zone), size), np.inf)
    run[:, 0] = 0.0
    none = np.full((len(heads), size), np.inf)
    none[:, 0] = 0.0
    history = [run]  # history[i] is run at tick t + 1 + i
    best = math.inf
    scratch = np.empty(size)
    for t in range(ticks - 1, -1, -1):
        # Only amounts between what must be done by t and what can still be done matter.
        high = min(work, (ticks - t) * step)
        low = max(work - t * step, 1)
        part = slice(low, high + 1)
        if t < last:
            arrive = _launches(history[boot - 1], boot_cost[:, t], streak[:, t], members, low, high, gained, scratch)
            if high == work:
                best = min(best, float(arrive[:, -1].min()))
            for g in range(len(heads)):
                for other in range(len(heads)):
                    there = np.add(arrive[other], between[g, other], out=scratch[: high + 1 - low])
                    np.minimum(none[g, part], there, out=none[g, part])
        new = history.pop() if len(history) > boot else np.empty_like(run)
        new[:, :low] = np.inf
        new[:, high + 1 :] = np.inf
        new[:, 0] = 0.0
        new[:, part] = none[group_of_place, part]
        finishing = max(min(step - low + 1, high + 1 - low), 0)
        onward = slice(low + finishing - step, high + 1 - step)
        for s in np.flatnonzero(up[:, t]).tolist():
            target = new[s, part]
            np.minimum(target[:finishing], price[s, t], out=target[:finishing])
            if finishing < target.size:
                rest, going_on = target[finishing:], scratch[: target.size - finishing]
                np.add(history[0][s, onward], price[s, t], out=going_on)
                np.minimum(rest, going_on, out=rest)
        history.insert(0, new)
    return best


def _launches(
    ahead: Floats,
    cost: Floats,
    possible: NDArray[np.bool_],
    members: list[NDArray[np.int64]],
    low: int,
    high: int,
    gained: int,
    scratch: Floats,
) -> Floats:
    """Cheapest launch in each group of zones, for `low` to `high` units of work left; `ahead` is run after the launch.

    A launch does `gained` units itself; less than that is finished by it.
    """
    width = high + 1 - low
    short = max(min(gained - low, width), 0)
    after = slice(max(low - gained, 0), max(low - gained, 0) + width - short)
    arrive = np.full((len(members), width), np.inf)
    for g, mine in enumerate(members):
        for s in mine[possible[mine]].tolist():
            target = arrive[g]
            np.minimum(target[:short], cost[s], out=target[:short])
            there = np.add(ahead[s, after], cost[s], out=scratch[: width - short])
            np.minimum(target[short:], there, out=target[short:])
    return arrive
