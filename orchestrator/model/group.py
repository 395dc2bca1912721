"""Group: jobs that are planned together, as frozen values. Money is nano-USD, times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.model.job import JobSpec

GroupPolicy = Literal[
    "cheapest",  # least total cost; jobs with deadlines are on time
    "max-min-fairness",  # the job with the smallest share, relative to its weight, gets as much as possible
    "finish-time-fairness",  # the largest delay that sharing causes is as small as possible
    "makespan",  # the last job ends as early as possible
    "max-throughput",  # the most steps per second in total
    "shortest-job-first",
    "first-in-first-out",
]
"""What a group optimizes (orchestrator.policy.groups.policies)."""
GROUP_POLICIES: tuple[GroupPolicy, ...] = get_args(GroupPolicy)


@dataclass(frozen=True, slots=True)
class Group:
    """A submitted group. Its jobs refer to it by `group_id`.

    `budget_nano_usd` limits the total cost of all its jobs. `deadline_at_ms` is the time by which all must have ended
    (market time). None: no limit. A job may have tighter limits.
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
    """One job of a group file: its spec, its weight (> 0) and the names of the jobs that must finish first."""

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
