"""Order: which jobs of a group must end before others start.

A *chain* is a list of jobs that run one after the other: each must end before the next one starts. All jobs of a chain
together have no more time than a single job. For a program, that is a limit like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from orchestrator.policy.groups.problem import Floats

Order = Mapping[str, Sequence[str]]
"""For each job id: the jobs that must end before it."""
NO_ORDER: Order = MappingProxyType({})
Before = Sequence[Sequence[int]]
"""For each job's number: the numbers of the jobs that must end before it."""
Chain = tuple[int, ...]
"""The numbers of jobs, first to last."""


def before_each(job_ids: Sequence[str], after: Order) -> Before:
    """The order of these jobs by their numbers. Jobs that are not among them count as ended."""
    number = {job_id: index for index, job_id in enumerate(job_ids)}
    return tuple(tuple(number[each] for each in after.get(job_id, ()) if each in number) for job_id in job_ids)


def longest_chains(before: Before, takes: Floats) -> dict[int, tuple[float, Chain]]:
    """For each job that no other comes after: how long the longest chain takes that ends with it, and the chain.
    `takes` (jobs,): how long each job takes."""
    length, last = np.array(takes, dtype=float), np.full(len(takes), -1)
    for job in in_turn(before):
        if before[job]:
            last[job] = max(before[job], key=lambda each: (length[each], -each))
            length[job] += length[last[job]]
    inner = {each for first in before for each in first}
    return {job: (float(length[job]), _back(last.tolist(), job)) for job in range(len(takes)) if job not in inner}


def time_after(before: Before, takes: Floats) -> Floats:
    """(jobs,): how long the longest chain takes that starts when a job ends."""
    found = np.zeros(len(takes))
    for job in reversed(in_turn(before)):
        for each in before[job]:
            found[each] = max(found[each], takes[job] + found[job])
    return found


def due_before(before: Before, due_s: Floats, takes: Floats) -> Floats:
    """(jobs,): when each job has to end at the latest: by its own deadline, and so early that each job after it can
    take its time (`takes` (jobs,)) until its own."""
    found = np.array(due_s, dtype=float)
    for job in reversed(in_turn(before)):
        for each in before[job]:
            found[each] = min(found[each], found[job] - takes[job])
    return found


def in_turn(before: Before) -> list[int]:
    """All jobs, each after those before it."""
    missing, following = [len(set(each)) for each in before], followers(before)
    found = [job for job, count in enumerate(missing) if count == 0]
    for job in found:
        for each in following[job]:
            missing[each] -= 1
            if missing[each] == 0:
                found.append(each)
    return found


def followers(before: Before) -> list[list[int]]:
    """For each job: those that it must end before."""
    found = [list[int]() for _ in before]
    for job, first in enumerate(before):
        for each in set(first):
            found[each].append(job)
    return found


def _back(last: Sequence[int], job: int) -> Chain:
    found = [job]
    while last[found[-1]] >= 0:
        found.append(last[found[-1]])
    return tuple(reversed(found))
