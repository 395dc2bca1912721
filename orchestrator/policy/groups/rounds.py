"""Rounds: which jobs run next, so that over many rounds each job has the share of time that a policy gave it.

This is the mechanism of Gavel (Narayanan et al., OSDI 2020, section 5): in each round, the jobs with the highest
priority run. A job's priority in a way is its share divided by the part of the time that it has had. Jobs without a
share fill what would be idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.groups.problem import Floats, Integers

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Standing:
    """Jobs between two rounds. All arrays are (jobs, ways) except `takes` (jobs,).

    `share` is the share of time that each job is to have, `had` the time it had (in any unit), `owed` what it is owed
    from before (breaks ties), and `able` whether it can run in the way. `takes` is how many machines or GPUs the job
    takes.
    """

    share: Floats
    had: Floats
    owed: Floats
    able: Bools
    takes: Floats


@dataclass(frozen=True, slots=True)
class Room:
    """Limits on machines: there are `most` (limits,) units of each, and a machine of a way takes `each` (limits, ways)
    of them, 0 where the limit does not apply."""

    each: Floats
    most: Floats

    @property
    def machines(self) -> Floats:
        """(ways,): how many machines of a way there can be if no other way has any; infinite if nothing limits them."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(self.each > 0, np.floor(self.most[:, None] / self.each), np.inf).min(
                axis=0, initial=np.inf
            )
        return found


def next_round(
    jobs: Standing, room: Room, passes: Iterable[Sequence[int]], held: tuple[Integers, Integers] | None = None
) -> tuple[Integers, Integers]:
    """(jobs, the way of each) of the next round, the `held` ones first.

    Each pass fills its ways together. Ways that share a limit belong in the same pass: otherwise the first of them
    would leave nothing to jobs whose share is in another.
    """
    left = room.most.astype(float)
    free = np.ones(len(jobs.takes), dtype=bool)
    chosen, on = ([], []) if held is None else (held[0].tolist(), held[1].tolist())
    for job, way in zip(chosen, on, strict=True):
        free[job] = False
        left -= room.each[:, way] * jobs.takes[job]
    priority = jobs.share / jobs.had
    limits = [np.flatnonzero(column) for column in room.each.T]

    def machines(way: int) -> float:
        """How many more machines fit."""
        at = limits[way]
        return float((left[at] / room.each[at, way]).min(initial=np.inf))

    for each in passes:
        ways = list(each)
        keys = (-column[:, ways].ravel() for column in (jobs.share, jobs.owed, priority))
        can = jobs.able[:, ways].ravel()
        within = np.array([machines(way) for way in ways])
        for place in np.lexsort(tuple(keys)):
            job, number = divmod(int(place), len(ways))
            if (within <= 0).all():
                break
            if can[place] and free[job] and jobs.takes[job] <= within[number]:
                way = ways[number]
                free[job] = False
                left -= room.each[:, way] * jobs.takes[job]
                within = np.array([machines(other) for other in ways])
                chosen.append(job)
                on.append(way)
    return np.array(chosen, dtype=np.int64), np.array(on, dtype=np.int64)
