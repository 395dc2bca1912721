"""Urgency: which jobs of a group must have machines now, so that the group's deadlines are met. Pure.

A single job is urgent if hardly less time is left than it takes. Several jobs that need the same machines can be urgent
together long before that: each has enough time by itself, but not all of them one after the other. So the test is the
same for one job and for many: whether all can be on time with a part of the time in reserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.errors import LimitError
from orchestrator.policy.groups.in_turns import possible
from orchestrator.policy.groups.planning import LEAST_SHARE, Asked
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.rounds import Bools
from orchestrator.policy.groups.time_limit import TimeLimit

URGENT = 0.9
"""Jobs have their turns before others if they must train for at least this part of the time until their deadlines. Not
counted is the time until turns are assigned again, the time that others need to give way, and twice the job's own
start."""
ROUNDING = 1e-6


def urgent(
    question: Asked,
    shares: Floats,
    holds: Sequence[int | None],
    moves_s: Floats,
    late: Bools,
    spare_s: float,
    until: TimeLimit,
) -> Bools:
    """(jobs, ways): the ways in which jobs must have machines now, before all others; those that are fast enough.

    `shares` (jobs, ways): the planned parts of the time. `holds`: the way in which each job runs, and `moves_s` (jobs,)
    how long it does not train if it moves. `late` (jobs,): the jobs that are late in any case. They give way to jobs
    that are not, but have machines before jobs without a deadline. `spare_s`: how long it takes until a job that waits
    can have a machine.
    """
    jobs = question.jobs
    has = np.array([each is not None for each in holds], dtype=bool)
    takes_s = _takes_s(question, holds, moves_s)
    left_s = URGENT * (jobs.deadline_s - question.begins_s - spare_s)
    found: Bools = (takes_s.min(axis=1) >= left_s) & ~late
    in_time = np.isfinite(jobs.deadline_s) & ~late
    if in_time.any():
        due_s = np.where(in_time, left_s + question.begins_s, np.inf)
        for job, way in enumerate(holds):
            if found[job] and way is not None and takes_s[job, way] <= jobs.deadline_s[job]:  # it has what it needs
                due_s[job] = max(due_s[job], takes_s[job, way] * (1 + ROUNDING) + ROUNDING)
        found |= _together(question, due_s, until)
    if late.any() and not (found & ~has).any():
        found |= late | (in_time & has & (shares.max(axis=1) > LEAST_SHARE))
    able = jobs.rate > 0
    enough = able & (takes_s <= jobs.deadline_s[:, None])
    return found[:, None] & np.where(enough.any(axis=1, keepdims=True), enough, able)


def _takes_s(question: Asked, holds: Sequence[int | None], moves_s: Floats) -> Floats:
    """(jobs, ways): for how long each job would be there until it is done. Not counted is the time that a job which
    waits takes to start wherever it is."""
    jobs = question.jobs
    starts_s = np.zeros(jobs.rate.shape) if jobs.start_s is None else jobs.start_s - question.begins_s[:, None]
    with np.errstate(divide="ignore"):
        found: Floats = np.where(jobs.rate > 0, jobs.steps[:, None] / jobs.rate + starts_s, np.inf)
    for job, way in enumerate(holds):
        if way is not None:
            found[job, np.arange(found.shape[1]) != way] += moves_s[job]
    return found


def _together(question: Asked, due_s: Floats, until: TimeLimit) -> Bools:
    """(jobs,): the fewest jobs, those with the nearest of these deadlines, that cannot all meet them; none if all can,
    or if that cannot be found out in time."""
    jobs = replace(question.jobs.with_starts(question.begins_s), deadline_s=due_s)
    last_s = np.unique(due_s[np.isfinite(due_s)])

    def all_until(number: int) -> bool:
        among = np.where(due_s <= last_s[number], due_s, np.inf)
        return possible(replace(jobs, deadline_s=among), until)

    try:
        if all_until(len(last_s) - 1):
            return np.zeros(len(jobs), dtype=bool)
        first, last = 0, len(last_s) - 1
        while first < last:
            middle = (first + last) // 2
            first, last = (middle + 1, last) if all_until(middle) else (first, middle)
    except LimitError:
        return np.zeros(len(jobs), dtype=bool)
    found: Bools = due_s <= last_s[last]
    return found
