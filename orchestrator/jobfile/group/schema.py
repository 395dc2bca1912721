"""The group file as pydantic models: what it has beside the fields of job files."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.schema import DEFAULT_PROJECT, Section
from orchestrator.jobfile.units import BadValueError, quoted
from orchestrator.jobfile.values import Deadline, Distinct, Many, Money, Name
from orchestrator.model import GROUP_POLICIES, GroupPolicy

_OTHER_WORDS: dict[str, GroupPolicy] = {
    **dict.fromkeys(("cost", "min-cost", "cheap", "minimize-cost"), "cheapest"),
    **dict.fromkeys(("fair", "fairness", "max-min", "maxmin", "max-min-fair", "las"), "max-min-fairness"),
    **dict.fromkeys(("ftf", "finish-time-fair", "themis"), "finish-time-fairness"),
    **dict.fromkeys(("fastest", "min-makespan", "min-time", "time"), "makespan"),
    **dict.fromkeys(("throughput", "max-sum-throughput", "total-throughput"), "max-throughput"),
    **dict.fromkeys(("sjf", "shortest-first", "srtf", "shortest"), "shortest-job-first"),
    **dict.fromkeys(("fifo", "fcfs", "order"), "first-in-first-out"),
}


def _policy(value: object) -> GroupPolicy:
    for policy in GROUP_POLICIES:
        if value == policy:
            return policy
    word = str(value).lower().replace("_", "-").replace(" ", "-")
    meant = word if word in GROUP_POLICIES else _OTHER_WORDS.get(word)
    hint = f"write {meant}" if meant else did_you_mean(word, GROUP_POLICIES) or f"one of {', '.join(GROUP_POLICIES)}"
    raise BadValueError(f"{quoted(value)} is not a valid policy", hint)


def _job_weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        shown = quoted(value) if not isinstance(value, dict | list) else "this"
        raise BadValueError(f"{shown} is not a valid weight", "a number above 0; 1 is usual, 2 is twice as much")
    if not math.isfinite(value):
        raise BadValueError("must be a finite number")
    return float(value)


class GroupFile(Section):
    """A whole group file, its jobs unread."""

    group: Name
    policy: Annotated[GroupPolicy, PlainValidator(_policy)] = "cheapest"
    project: Name = DEFAULT_PROJECT
    budget: Money | None = None
    deadline: Deadline | None = None
    defaults: Annotated[dict[str, Any], Field(default_factory=dict)]
    jobs: tuple[dict[str, Any], ...]


class EntryFields(Section):
    """What an entry of `jobs` has beside the fields of a job file."""

    file: str | None = None
    weight: Annotated[float, PlainValidator(_job_weight)] = 1.0
    after: Annotated[tuple[Name, ...], Many, Distinct] | None = None


def own_fields() -> frozenset[str]:
    """The fields of an entry that are not fields of its job file."""
    return frozenset({*EntryFields.model_fields, "matrix"})
