"""Rounds: which jobs run next, so that over many rounds each has the share of time that a policy gave it.

The mechanism of Gavel (Narayanan et al., OSDI 2020, section 5): in each round the jobs with the highest priority run. A
job's priority in a way is its share divided by the part of the time that it has had. Ways are filled one after the
other, and jobs without a share fill what is idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.groups.problem import Floats, Integers

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Standing:
    """Jobs between two rounds, all (jobs, ways) but the last: the `share` of time that each is to have, what it `had`
    (in any unit of time), what it is `owed` from before (breaks ties), whether it is `able` to run so; and how many
    machines or GPUs it `takes` (jobs,)."""

    share: Floats
    had: Floats
    owed: Floats
    able: Bools
    takes: Floats


@dataclass(frozen=True, slots=True)
class Room:
    """At most `most` (limits,) over the ways of each limit: `covers` (limits, ways)."""

    covers: Bools
    most: Floats


def next_round(
    jobs: Standing, room: Room, ways: Iterable[int], held: tuple[Integers, Integers] | None = None
) -> tuple[Integers, Integers]:
    """(jobs, the way of each) of the next round, the `held` ones first. `ways` are filled in this order."""
    left = room.most.astype(float)
    free = np.ones(len(jobs.takes), dtype=bool)
    chosen, on = ([], []) if held is None else (held[0].tolist(), held[1].tolist())
    for job, way in zip(chosen, on, strict=True):
        free[job] = False
        left[room.covers[:, way]] -= jobs.takes[job]
    priority = jobs.share / jobs.had
    for way in ways:
        limits = np.flatnonzero(room.covers[:, way])
        can = free & jobs.able[:, way]
        for job in np.lexsort((-jobs.share[:, way], -jobs.owed[:, way], -priority[:, way])):
            space = left[limits].min(initial=np.inf)
            if space <= 0:
                break
            if can[job] and jobs.takes[job] <= space:
                free[job] = False
                left[limits] -= jobs.takes[job]
                chosen.append(int(job))
                on.append(way)
    return np.array(chosen, dtype=np.int64), np.array(on, dtype=np.int64)
