"""Splits the time of a class among its jobs, so that each job gets what it needs.

Jobs are served from the most demanding down. Each takes one job's worth of time from the class's time, sorted by speed,
at the place where its rate is exactly the need: two neighbouring speeds, or one speed and idling (Gonzalez and Sahni,
J. ACM 25, 1978). What remains is enough for the others, because the needs meet the conditions of curves.py.
"""

from __future__ import annotations

import numpy as np

from orchestrator.policy.groups.problem import Floats, Problem

TINY = 1e-12


def split(problem: Problem, times: Floats, needs: Floats) -> Floats:
    """(jobs, ways): each job's share of its class's `times` (classes, ways), for `needs` (jobs,) in steps/s.

    Jobs with equal needs get equal shares. If the needs of a class differ, time that no job needs goes to jobs that
    have time left.
    """
    count, class_of = problem.count, problem.class_of
    shares: Floats = (times / np.maximum(count, 1)[:, None])[class_of]
    low, high = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(low, class_of, needs)
    np.maximum.at(high, class_of, needs)
    mixed = np.flatnonzero(high > low * (1 + 1e-12) + TINY)
    if len(mixed):
        order = np.argsort(class_of, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(class_of, minlength=len(count)))])
        for each in mixed:
            jobs = order[start[each] : start[each + 1]]
            shares[jobs] = _cut(problem.rate[each], times[each], needs[jobs])
    return shares


def _cut(rate: Floats, times: Floats, needs: Floats) -> Floats:
    ways = np.argsort(-rate, kind="stable")
    ways = ways[times[ways] > TINY]
    left: list[list[float]] = [[float(rate[way]), float(times[way]), way] for way in ways]
    shares = np.zeros((len(needs), len(rate)))
    for job in np.argsort(-needs, kind="stable"):
        for way, part in _window(left, float(needs[job])):
            shares[job, way] += part
    for job, busy in enumerate(shares.sum(axis=1).tolist()):
        idle = 1.0 - busy
        while left and idle > TINY:
            part = min(idle, left[0][1])
            shares[job, int(left[0][2])] += part
            idle -= part
            _take(left, 0, part)
    return shares


def _window(left: list[list[float]], need: float) -> list[tuple[int, float]]:
    """Take one job's worth of time from `left` ([rate, time, way], fastest first). Its rate is `need` if there is such
    a window, else it is the fastest one.

    The window slides from the fastest end. Between the borders of pieces, its rate falls linearly.
    """
    if need <= 0 or not left:
        return []
    first, skip, rate, last, room = 0, 0.0, 0.0, 0, 1.0
    while last < len(left) and left[last][1] <= room:
        rate, room, last = rate + left[last][0] * left[last][1], room - left[last][1], last + 1
    used = 0.0
    if last < len(left):
        rate, used = rate + left[last][0] * room, room
    while rate > need and first < len(left):
        here, ahead = left[first][1] - skip, left[last][1] - used if last < len(left) else np.inf
        slope = left[first][0] - (left[last][0] if last < len(left) else 0.0)
        step = min(here, ahead)
        if slope * step >= rate - need:
            step, need = (rate - need) / slope, np.inf
        skip, used, rate = skip + step, used + step, rate - slope * step
        if step == here and need != np.inf:
            first, skip = first + 1, 0.0
        if step == ahead and need != np.inf:
            last, used = last + 1, 0.0
    parts = []
    for at in range(first, min(last + 1, len(left))):
        until = used if at == last else left[at][1]
        parts.append((at, until - (skip if at == first else 0.0)))
    taken = [(int(left[at][2]), part) for at, part in parts if part > 0]
    for at, part in reversed(parts):
        if part > 0:
            _take(left, at, part)
    return taken


def _take(left: list[list[float]], index: int, part: float) -> None:
    left[index][1] -= part
    if left[index][1] <= TINY:
        del left[index]
