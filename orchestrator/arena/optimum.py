"""Optimum: the clairvoyant optimum of one job: an exact dynamic program that knows all prices and all capacity.

    run[t, s, w]     cheapest way to do w from tick t on, with a machine s = (zone, kind) past its overhead
    none[t, z, w]    the same with nothing running and the checkpoint in zone z

A launch is one step of `boot` ticks, those of the overhead: releasing a machine that has made no progress yet never
pays, except as a detour for egress. Where it might, egress prices are closed over detours; the result is then a lower
bound. Work is counted in the greatest common divisor of the work of a tick and of a launch, so every reachable amount
of work is a whole number. If that is too small (odd overheads, arbitrary GPU speeds), progress is rounded up to a
coarser unit: again a lower bound. All machines of a gang do the same, so the result holds for gangs and for single
machines.

It runs backwards over ticks, for all amounts of work at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.ticks import Task, pace_permille
from orchestrator.arena.traces import Window

Floats = NDArray[np.float64]

MAX_UNITS = 60_000


@dataclass(frozen=True, slots=True)
class Optimum:
    """US$ per machine. If not `exact`, a lower bound: progress was rounded up to a coarser unit of work, or a
    checkpoint could be carried over a third zone for less, for which only the cheapest tick was billed."""

    usd: float
    exact: bool


def optimum(task: Task, window: Window, *, on_demand: bool = True, max_units: int = MAX_UNITS) -> Optimum:
    """The lowest possible cost of the job under the tick rules. `on_demand`: whether it may be used.

    `usd` is infinite if nothing could have finished in time (only without on-demand).
    """
    tick_ms = window.tick_ms
    boot = max(-(-task.overhead_ms // tick_ms), 1)  # ticks of a launch
    paces = pace_permille(window)
    done = {pace: (tick_ms * pace, (boot * tick_ms - task.overhead_ms) * pace) for pace in paces}  # in microseconds
    work_us = task.work_ms * 1000
    unit, exact = _unit(work_us, done.values(), tick_ms * 1000, max_units)
    units = {pace: (-(-step // unit), -(-gained // unit)) for pace, (step, gained) in done.items()}
    places = _places(window, on_demand, [units[pace] for pace in paces])
    egress = task.checkpoint_gb * window.egress
    # A relay is a launch and bills at least a tick: if that costs as much as it saves, none is ever taken.
    relayed = np.minimum(egress, _closed(egress) + places.price.min())
    exact = exact and np.array_equal(relayed, egress)
    return Optimum(_solve(task.ticks, -(-work_us // unit), boot, places, relayed), exact)


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Machines as rows: zone, whether it is up, price per tick, units of work done by a tick and by a launch.

    Equal on-demand zones are included only once.
    """

    zone: NDArray[np.int64]
    up: NDArray[np.bool_]
    price: Floats
    step: tuple[int, ...]
    gained: tuple[int, ...]


def _unit(work: int, done: Iterable[tuple[int, int]], tick: int, max_units: int) -> tuple[int, bool]:
    """(unit, whether all amounts are whole multiples of it)."""
    unit = math.gcd(*(part for pair in done for part in pair))
    if -(-work // unit) <= max_units:
        return unit, True
    finest = max_units * tick // work  # parts of a tick
    return tick // next((parts for parts in range(finest, 0, -1) if tick % parts == 0), 1), False


def _closed(egress: Floats) -> Floats:
    """The cheapest egress between zones including detours, which makes the result a lower bound for all prices."""
    closed = egress.copy()
    for via in range(len(closed)):
        closed = np.minimum(closed, closed[:, via : via + 1] + closed[via : via + 1, :])
    np.fill_diagonal(closed, 0.0)
    return closed


def _places(window: Window, on_demand: bool, units: list[tuple[int, int]]) -> _Places:
    hours = window.tick_ms / 3_600_000
    zone, up, price = list(range(len(window.zones))), [window.up], [window.spot * hours]
    if on_demand:
        alike = {
            (float(window.on_demand[z]), units[z], tuple(window.egress[z]), tuple(window.egress[:, z])): z
            for z in reversed(range(len(window.zones)))
        }
        for z in sorted(alike.values()):
            zone.append(z)
            up.append(np.ones((1, window.ticks), np.bool_))
            price.append(np.full((1, window.ticks), window.on_demand[z] * hours))
    steps, gains = zip(*(units[z] for z in zone), strict=True)
    return _Places(np.array(zone), np.concatenate(up), np.concatenate(price), steps, gains)


def _solve(ticks: int, work: int, boot: int, places: _Places, egress: Floats) -> float:
    """The lowest cost. Column i of every array means i units of work left; 0 includes any excess.

    Only the newest `boot` ticks of `run` are kept. `none` has a row per group of zones with equal egress.
    """
    up, price = places.up[:, :ticks], places.price[:, :ticks]
    # streak[s, t]: a launch at t stays up through its overhead; cost[s, t]: the cost of these ticks.
    sums = np.concatenate([np.zeros((len(price), 1)), np.cumsum(price, axis=1)], axis=1)
    ups = np.concatenate([np.zeros((len(up), 1), np.int64), np.cumsum(up, axis=1)], axis=1)
    last = max(ticks - boot + 1, 0)
    streak = ups[:, boot:] - ups[:, :last] == boot
    boot_cost = sums[:, boot:] - sums[:, :last]

    rows_of_egress, group_of = np.unique(np.concatenate([egress, egress.T], axis=1), axis=0, return_inverse=True)
    group_of = group_of.ravel()
    heads = [int(np.flatnonzero(group_of == g)[0]) for g in range(len(rows_of_egress))]
    between = egress[np.ix_(heads, heads)]
    group_of_place = group_of[places.zone].tolist()
    members = [np.flatnonzero(group_of[places.zone] == g) for g in range(len(heads))]

    fastest = max(places.step)
    # If all machines are equally fast: one launch at the lowest price of all is a lower bound.
    least = 0.0
    if len(set(places.step)) == 1 and price.size:
        least = (boot + max(-(-(work - places.gained[0]) // fastest), 0)) * float(price.min())
    size = work + 1
    run = np.full((len(places.zone), size), np.inf)
    run[:, 0] = 0.0
    none = np.full((len(heads), size), np.inf)
    none[:, 0] = 0.0
    arrive, nowhere = np.empty_like(none), np.full(size, np.inf)
    history = [run]  # history[i] is run at tick t + 1 + i
    best = math.inf
    scratch = np.empty(size)
    for t in range(ticks - 1, -1, -1):
        # Only amounts between the work that must be done by t and the work that can still be done matter.
        high = min(work, (ticks - t) * fastest)
        low = max(work - t * fastest, 1)
        part = slice(low, high + 1)
        if t < last:
            for g, mine in enumerate(members):
                landing, best_yet = arrive[g, part], nowhere[part]
                for s in mine[streak[mine, t]].tolist():
                    ahead = history[boot - 1][s]
                    _onward(ahead, float(boot_cost[s, t]), places.gained[s], low, high, best_yet, landing, scratch)
                    best_yet = landing
                if best_yet is not landing:
                    landing.fill(np.inf)
            if high == work:
                best = min(best, float(arrive[:, work].min()))
                if best <= least * (1 + 1e-12):
                    break
            for g in range(len(heads)):
                np.minimum(none[g, part], arrive[g, part], out=none[g, part])
                for other in range(len(heads)):
                    if other != g:
                        there = np.add(arrive[other, part], between[g, other], out=scratch[: high + 1 - low])
                        np.minimum(none[g, part], there, out=none[g, part])
        new = history.pop() if len(history) > boot else np.empty_like(run)
        new[:, :low] = np.inf
        new[:, high + 1 :] = np.inf
        new[:, 0] = 0.0
        for s, g in enumerate(group_of_place):
            if up[s, t]:
                ahead, cost = history[0][s], float(price[s, t])
                _onward(ahead, cost, places.step[s], low, high, none[g, part], new[s, part], scratch)
            else:
                new[s, part] = none[g, part]
        history.insert(0, new)
    return best


def _onward(
    ahead: Floats, cost: float, done: int, low: int, high: int, other: Floats, into: Floats, scratch: Floats
) -> None:
    """Set `into` (`low` to `high` units left) to the lower of `other` and paying `cost` for `done` units."""
    finished = max(min(done - low + 1, into.size), 0)
    np.minimum(other[:finished], cost, out=into[:finished])
    if finished < into.size:
        there = np.add(ahead[low + finished - done : high + 1 - done], cost, out=scratch[: into.size - finished])
        np.minimum(other[finished:], there, out=into[finished:])
