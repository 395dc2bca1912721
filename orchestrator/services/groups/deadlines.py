"""Deadlines of groups: each job must meet its own deadline and that of its group."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model import GroupSpec, JobSpec


def with_deadline(spec: JobSpec, group: GroupSpec, now_ms: int) -> JobSpec:
    """The spec of a job of the group, with the group's deadline if it is earlier than the job's own.

    A duration counts from `now_ms`, so which deadline is earlier depends on the current time. That is why a group file
    is stored as written, and this is computed when its jobs are created.
    """
    whole = _due_ms(group.deadline_s, group.deadline_at_ms, now_ms)
    own = _due_ms(spec.deadline_s, spec.deadline_at_ms, now_ms)
    if whole is None or (own is not None and own <= whole):
        return spec
    return replace(spec, deadline_s=group.deadline_s, deadline_at_ms=group.deadline_at_ms)


def _due_ms(after_s: float | None, at_ms: int | None, now_ms: int) -> float | None:
    return at_ms if after_s is None else now_ms + 1000 * after_s
