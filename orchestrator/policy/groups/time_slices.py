"""Time slices: jobs take turns on machines that people own, so that each has its part of their time.

A policy of fairness gives each job a share of the time of each way (a kind of machine); rounds.py says who runs in the
next round. What a job had is counted over a window of the last rounds, in relation to how much of it the job was there.
For a job that waits for longer than that, the window is as long as its wait: so its priority rises until it has a turn,
however small its share is. Among equals, whoever has waited longest is next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from orchestrator.policy.groups.collection import Quota, Supply, collection
from orchestrator.policy.groups.engine import solve
from orchestrator.policy.groups.entitlement import alone
from orchestrator.policy.groups.policies.named import PROGRAMS
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.rounds import Room, Standing, next_round

Fairness = Literal["max-min-fairness", "finish-time-fairness"]
WINDOW = 20
"""Rounds that count for what a job had: within so many, its part of the time is even with its share."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A job that runs on owned machines, or waits and could.

    `rate` (ways,): steps/s, 0 where it cannot run; `takes`: machines at once; `steps` left and `done`; `age_s`: since
    it was submitted; `waited_s`: since it last trained or was submitted; `had_s` (ways,) and `there_s`: of the last
    WINDOW rounds, what it trained and for how long it was there. `holds` is the way in which it runs now; `keeps`: its
    turn has just begun. `weight`: how many times the part of another it is entitled to.
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


@dataclass(frozen=True, slots=True)
class Turns:
    """`shares` (jobs, ways) of the time, by the policy, in the order of the contenders; `way`: of each job that has a
    turn now, by job id."""

    shares: Floats
    way: Mapping[str, int]


def turns(contenders: Sequence[Contender], room: Room, fairness: Fairness, round_s: float) -> Turns:
    """Who has the machines until the next round. Every contender must be able to run in some way, in which there are as
    many machines as it takes. Raises what `solve` raises."""
    rate = np.array([each.rate for each in contenders])
    takes = np.array([float(each.takes) for each in contenders])
    shares = _shares(contenders, rate, takes, room, fairness)
    credit_s = round_s / 2
    waited_s = np.array([each.waited_s for each in contenders])
    there_s = np.maximum([each.there_s for each in contenders], waited_s)
    had = (np.array([each.had_s for each in contenders]) + credit_s) / (there_s[:, None] + 2 * credit_s)
    owed = np.broadcast_to(waited_s[:, None], shares.shape)
    standing = Standing(shares, had, owed, rate > 0, takes)
    holders = [(job, each.holds) for job, each in enumerate(contenders) if each.holds is not None]
    for held in (holders, [each for each in holders if contenders[each[0]].keeps]):
        who, where = (np.array([each[column] for each in held], dtype=np.int64) for column in (0, 1))
        jobs, ways = next_round(standing, room, [range(rate.shape[1])], (who, where))
        if len(jobs) == len(contenders):
            break  # there is room for all of them: nobody has to give way
    chosen = zip(jobs.tolist(), ways.tolist(), strict=True)
    return Turns(shares, {contenders[job].job_id: way for job, way in chosen})


def _shares(contenders: Sequence[Contender], rate: Floats, takes: Floats, room: Room, fairness: Fairness) -> Floats:
    """(jobs, ways). What a job has done is valued as if there had always been as many jobs as now."""
    machines = np.where(room.covers, room.most[:, None], np.inf).min(axis=0)
    limits = zip(room.covers, room.most.tolist(), strict=True)
    jobs = collection(
        rate,
        Supply(machines, np.zeros(len(machines))),
        gpus=takes,
        weight=np.array([each.weight for each in contenders]),
        steps=np.array([max(each.steps, 1.0) for each in contenders]),
        age_s=np.array([each.age_s for each in contenders]),
        quotas=tuple(
            Quota(f"limit {number}", np.flatnonzero(ways), most) for number, (ways, most) in enumerate(limits)
        ),
    )
    jobs = replace(jobs, alone_s=np.array([each.done for each in contenders]) / alone(jobs))
    return solve(PROGRAMS[fairness](jobs)).shares
