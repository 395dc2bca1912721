"""Group: jobs that are decided together, as frozen values. Money is nano-USD, times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.model.job import JobSpec

GroupPolicy = Literal[
    "cheapest",  # least total cost; jobs with deadlines are on time
    "max-min-fairness",  # the job that gets least, relative to its weight, gets as much as possible
    "finish-time-fairness",  # the job that sharing delays most is delayed least
    "makespan",  # the last job ends as early as possible
    "max-throughput",  # the most steps per second in total
    "shortest-job-first",
    "first-in-first-out",
]
"""What a group optimizes (orchestrator.policy.groups.policies)."""
GROUP_POLICIES: tuple[GroupPolicy, ...] = get_args(GroupPolicy)


@dataclass(frozen=True, slots=True)
class Group:
    """A submitted group. Its jobs name it by `group_id`.

    `budget_nano_usd` is a ceiling on what all its jobs cost together, `deadline_at_ms` the time by which all must have
    ended (market time); None: no limit. A job may have tighter limits of its own.
    """

    id: str
    name: str
    policy: GroupPolicy
    project: str
    owner: str
    submitted_at_ms: int
    budget_nano_usd: int | None = None
    deadline_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupJob:
    """One job of a group file: its spec, its weight (> 0) and the names of the jobs that must have finished before."""

    spec: JobSpec
    weight: float = 1.0
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A validated group file. Names are distinct, and `after` has no cycle. Each job must meet its own deadline and the
    group's."""

    name: str
    policy: GroupPolicy
    project: str
    jobs: tuple[GroupJob, ...]
    budget_nano_usd: int | None = None
    deadline_s: float | None = None  # from submission
    deadline_at_ms: int | None = None  # or absolute
