"""The group file as pydantic models: the fields that it has in addition to those of job files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainValidator

from orchestrator.errors import nearest
from orchestrator.jobfile.schema import DEFAULT_PROJECT, Section
from orchestrator.jobfile.units import BadValueError, quoted
from orchestrator.jobfile.values import Deadline, Distinct, GroupName, Many, Money, Name, NonEmpty
from orchestrator.model import GROUP_POLICIES, GroupPolicy

LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000
"""The limits of a job's weight: with a wider range, a light job's share would be less than a rounding error."""

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
    near = nearest(word, GROUP_POLICIES) or _OTHER_WORDS.get(nearest(word, _OTHER_WORDS))
    hint = f'did you mean "{near}"?' if near else f"one of {', '.join(GROUP_POLICIES)}"
    raise BadValueError(f"{quoted(value)} is not a valid policy", f"write {meant}" if meant else hint)


def _job_weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_WEIGHT <= value <= MOST_WEIGHT:
        hint = f"write a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:,.0f}; 1 is the default, 2 is twice as much"
        raise BadValueError(f"{quoted(value)} is not a valid weight", hint)
    return float(value)


def _jobs(value: object) -> list[object]:
    if isinstance(value, list) and value:
        return value
    if value in ([], {}, ""):
        raise BadValueError("a group needs at least one job")
    dash = 'begin each job with "- ": ' if isinstance(value, dict) else ""
    raise BadValueError("must be a list of jobs", f"{dash}write it like {JOBS_EXAMPLE}")


JOBS_EXAMPLE = "[{file: job.yaml}]"


class GroupFile(Section):
    """A whole group file; its jobs are not read yet."""

    group: GroupName = Field(examples=["vision-sweep"])
    policy: Annotated[GroupPolicy, PlainValidator(_policy)] = "cheapest"
    project: Name = Field(DEFAULT_PROJECT, examples=["research"])
    budget: Money | None = Field(None, examples=["$400"])
    deadline: Deadline | None = Field(None, examples=["48h"])
    defaults: dict[str, Any] = Field({}, examples=["{retries: 5}"])
    jobs: Annotated[list[Any], PlainValidator(_jobs)] = Field(examples=[JOBS_EXAMPLE])


class EntryFields(Section):
    """The fields of an entry of `jobs` that a job file does not have."""

    file: NonEmpty | None = Field(None, examples=["job.yaml"])
    weight: Annotated[float, PlainValidator(_job_weight)] = 1.0
    after: Annotated[tuple[Name, ...], Many, Distinct] | None = Field(None, examples=["[bert]"])


def looks_like_group(tree: object) -> bool:
    """Whether a file has the fields of a group, in upper or lower case: `jobs`, or `group` without `train`."""
    names = {key.casefold() for key in tree if isinstance(key, str)} if isinstance(tree, dict) else set()
    return "jobs" in names or ("group" in names and "train" not in names)


OWN_FIELDS = (*EntryFields.model_fields, "matrix")
"""The fields of an entry that are not fields of its job file."""
