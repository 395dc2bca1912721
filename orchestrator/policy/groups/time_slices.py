"""Time slices: jobs take turns on machines whose number is limited (owned ones, or those under a quota), so that each
job has its share of their time.

A policy gives each job a share of the time of each way (a kind of machine). rounds.py says which jobs run in the next
round. A job's past time is counted over a window of the last rounds, relative to the part of the window for which the
job was present. For a job that waits longer than the window, the window is as long as its wait. So its priority rises
until it has a turn, however small its share is. Among equals, the job that has waited longest is next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from orchestrator.policy.groups.collection import Quota, Supply, collection
from orchestrator.policy.groups.engine import solve
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.policies.named import PROGRAMS
from orchestrator.policy.groups.problem import Floats, Integers
from orchestrator.policy.groups.rounds import Bools, Room, Standing, next_round

Fairness = Literal["max-min-fairness", "finish-time-fairness"]
HARDLY = 1e-6
"""A smaller part of a machine is a rounding error of the solver."""
WINDOW = 20
"""The number of rounds that count for what a job had. Over this many rounds, its part of the time matches its share."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A job that runs on one of these machines, or waits for one.

    - `rate` (ways,): steps/s, 0 where the job cannot run.
    - `takes`: how many machines it takes at once.
    - `steps` left, and `done`.
    - `age_s`: for how long it has wanted a machine.
    - `waited_s`: the time since it last trained, or was submitted.
    - `had_s` (ways,) and `there_s`: within the last WINDOW rounds, for how long it trained in each way, and for how
      long it was there.
    - `holds`: the way in which it runs now; `keeps`: its turn there is not over yet.
    - `weight`: how many times the share of a job with weight 1 it is entitled to.
    - `urgent` (ways,): where it must have its turn now, or would be late. None: nowhere.
    """

    job_id: str
    rate: Floats
    takes: int
    steps: float
    done: float
    age_s: float
    waited_s: float
    had_s: Floats
    there_s: float
    holds: int | None = None
    keeps: bool = False
    weight: float = 1.0
    urgent: Bools | None = None


def turns(
    contenders: Sequence[Contender],
    shares: Floats,
    room: Room,
    round_s: float,
    able: Bools | None = None,
    *,
    precedence: Floats | None = None,
    gather: bool = True,
) -> Mapping[str, int]:
    """Which jobs have which machines until the next round: the way of each job that has a turn, by job id.

    - `shares` (jobs, ways): parts of the time, in the order of the contenders.
    - `able` (jobs, ways): where a job may have its turn; by default, wherever it can run.
    - `precedence` (jobs,): a factor for each job's priority.

    Urgent jobs come first where they are urgent, then those that keep their turns. If all jobs fit, none has to give
    way. Each way is first filled only as far as the shares use it. Otherwise, jobs whose shares are in several ways
    could all meet in one way and leave another empty.

    `gather` (used where turns end): if the first job in line needs several machines, and kept turns leave too few, it
    gets what others leave until these turns end. Meanwhile no new job starts there, and jobs whose turns are over go
    on.
    """
    takes = np.array([float(each.takes) for each in contenders])
    able = np.array([each.rate for each in contenders]) > 0 if able is None else able
    credit_s = round_s / 2
    waited_s = np.array([each.waited_s for each in contenders])
    there_s = np.maximum([each.there_s for each in contenders], waited_s)
    had = (np.array([each.had_s for each in contenders]) + credit_s) / (there_s[:, None] + 2 * credit_s)
    owed = np.broadcast_to(waited_s[:, None], shares.shape)
    counted = shares if precedence is None else shares * precedence[:, None]
    standing, passes = Standing(counted, had, owed, able, takes), [range(shares.shape[1])]
    planned = _as_planned(room, shares, takes)
    holders = [(job, each.holds) for job, each in enumerate(contenders) if each.holds is not None]
    nowhere = np.zeros(shares.shape[1], dtype=bool)
    urgent = np.array([nowhere if each.urgent is None else each.urgent for each in contenders])
    first = list[tuple[int, int]]()
    if urgent.any():
        held = _columns([each for each in holders if urgent[each]])
        of_urgent = replace(standing, able=standing.able & urgent)
        first = list(zip(*(each.tolist() for each in next_round(of_urgent, room, passes, held)), strict=True))

    def filled(kept: Sequence[tuple[int, int]]) -> dict[int, int]:
        found = next_round(standing, room, passes, next_round(standing, planned, passes, _columns(kept)))
        return dict(zip(*(each.tolist() for each in found), strict=True))

    for kept in (holders, [each for each in holders if contenders[each[0]].keeps]):
        seated = _beside(first, kept, room, takes)
        chosen = filled(seated)
        if len(chosen) == len(contenders):
            break
    if gather and seated and len(chosen) < len(contenders):
        line = _first_in_line(standing, {job for job, _ in seated})
        if line is not None and line[0] not in chosen and takes[line[0]] > 1:
            chosen = filled([*seated, line])
            del chosen[line[0]]
            going_on = [each for each in holders if each[0] not in chosen]
            chosen = dict(_beside(list(chosen.items()), going_on, room, takes))
    return {contenders[job].job_id: way for job, way in chosen.items()}


def _first_in_line(jobs: Standing, seated: Collection[int]) -> tuple[int, int] | None:
    """(the job with the highest priority of those not in `seated`, the way in which it has that priority); None if
    there is none."""
    priority = np.where(jobs.able, jobs.share / jobs.had, -1.0)
    priority[list(seated)] = -1.0
    place = int(np.lexsort(tuple((-column).ravel() for column in (jobs.share, jobs.owed, priority)))[0])
    job, way = divmod(place, priority.shape[1])
    return (job, way) if priority[job, way] > 0 else None


def _as_planned(room: Room, shares: Floats, takes: Floats) -> Room:
    """The room, limited to as many machines of each way as the shares use, and at least as many as any of its jobs
    takes."""
    used = np.ceil((shares * takes[:, None]).sum(axis=0) - HARDLY)
    largest = np.where(shares > HARDLY, takes[:, None], 0.0).max(axis=0)
    each = np.vstack([room.each, np.eye(len(used))])
    return Room(each, np.concatenate([room.most, np.maximum(used, largest)]))


def _beside(
    first: Sequence[tuple[int, int]], kept: Sequence[tuple[int, int]], room: Room, takes: Floats
) -> list[tuple[int, int]]:
    """All of `first`, and those of `kept` for which these leave room."""
    if not first:
        return list(kept)
    found, left = list(first), room.most.astype(float)
    for job, way in first:
        left -= room.each[:, way] * takes[job]
    chosen = {job for job, _ in first}
    for job, way in kept:
        after = left - room.each[:, way] * takes[job]
        if job not in chosen and (after[room.each[:, way] > 0] >= 0).all():
            found.append((job, way))
            left = after
    return found


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Integers, Integers]:
    jobs, ways = (np.array([each[column] for each in pairs], dtype=np.int64) for column in (0, 1))
    return jobs, ways


def in_whole_machines(shares: Floats, takes: Floats, room: Room) -> Floats:
    """(jobs,): the part of the time that each job can really have of its `shares` (jobs, ways).

    Jobs that need too many machines to run side by side cannot have more than all of the time together, which shares do
    not take into account.
    """
    found = shares.copy()
    for each, most in zip(room.each, room.most.tolist(), strict=True):
        covers = each > 0
        units = takes * np.where((shares > HARDLY) & covers, each, np.inf).min(axis=1)
        there = np.isfinite(units)
        if not (2 * units[there] > most).any():
            continue
        part = np.where(there, shares[:, covers].sum(axis=1), 0.0)
        for job in np.flatnonzero(there):
            one_at_a_time = there & (2 * units > most) & (units + units[job] > most)
            one_at_a_time[job] = True
            together = max(float(part[one_at_a_time].sum()), 1.0)
            of_these = np.ix_(one_at_a_time, covers)
            found[of_these] = np.minimum(found[of_these], shares[of_these] / together)
    parts: Floats = found.sum(axis=1)
    return parts


def fair_shares(contenders: Sequence[Contender], room: Room, fairness: Fairness) -> Floats:
    """(jobs, ways): the part of the time that a fairness policy gives each job.

    Every contender must be able to run in some way that has as many machines as it takes. What a job has done is valued
    as if there had always been as many jobs as now. Raises what `solve` raises.
    """
    rate = np.array([each.rate for each in contenders])
    takes = np.array([float(each.takes) for each in contenders])
    machines = room.machines
    limits = zip(room.each, room.most.tolist(), strict=True)
    jobs = collection(
        rate,
        Supply(machines, np.zeros(len(machines))),
        gpus=takes,
        weight=np.array([each.weight for each in contenders]),
        steps=np.array([max(each.steps, 1.0) for each in contenders]),
        age_s=np.array([each.age_s for each in contenders]),
        quotas=tuple(
            Quota(f"limit {number}", np.flatnonzero(each), most, each[each > 0])
            for number, (each, most) in enumerate(limits)
        ),
    )
    jobs = replace(jobs, alone_s=np.array([each.done for each in contenders]) / alone(jobs))
    return solve(PROGRAMS[fairness](jobs)).shares
