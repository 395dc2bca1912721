"""Following: what the jobs that can run now have to know of those that come after them, under `makespan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from orchestrator.policy.demand import Running
from orchestrator.policy.groups.order import Order, before_each, time_after
from orchestrator.policy.groups.planning import NOWHERE, Asked, joint, without_deadlines
from orchestrator.policy.groups.time_limit import TimeLimit


def knowing_what_follows(
    question: Asked, of_all: Asked, after: Order, running: Mapping[str, Running] = NOWHERE, *, until: TimeLimit
) -> Asked:
    """The question about jobs that can run now, with how long the jobs `of_all` take that come after them, by the plan
    of least makespan. Raises LimitError."""
    plan = joint(without_deadlines(of_all), "makespan", running, after=after, until=until)
    takes_s = np.array(
        [
            each.duration_s * sum(part.share for part in each.parts) if each.steps_per_s > 0 else 0.0
            for each in plan.jobs
        ]
    )
    ids = [each.job_id for each in plan.jobs]
    after_s = dict(zip(ids, time_after(before_each(ids, after), takes_s).tolist(), strict=True))
    following_s = np.array([after_s[each.job.id] for each in question.demands])
    return replace(question, jobs=replace(question.jobs, after_s=following_s))
