"""Which jobs come first by the priority of their project, and to which part of shared machines each is entitled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.policy import Demand
from orchestrator.policy.groups.time_slices import Contender
from orchestrator.policy.projects import STARVED_S, priority_of, weighted

TRAIN = TrainSpec("m:f", None, {}, "/", {}, (), 10, None)


def weights_of(jobs: Mapping[str, tuple[str, float]], of_project: Mapping[str, float | None]) -> dict[str, float]:
    """`jobs`: project and own weight by job."""
    demands = [
        Demand(Job(name, JobSpec(name, TRAIN, project=project), "me", 0, "queued"), 10)
        for name, (project, _) in jobs.items()
    ]
    demands = [replace(each, project_weight=of_project[each.job.project]) for each in demands]
    contenders = [
        Contender(name, np.ones(1), 1, 10.0, 0.0, 0.0, 0.0, np.zeros(1), 0.0, weight=own)
        for name, (_, own) in jobs.items()
    ]
    return {each.job_id: each.weight for each in weighted(contenders, demands)}


def test_the_jobs_of_a_project_share_its_weight_by_their_own() -> None:
    jobs = {"a": ("vision", 1.0), "b": ("vision", 3.0), "c": ("speech", 7.0)}
    assert weights_of(jobs, {"vision": 2.0, "speech": 1.0}) == pytest.approx({"a": 0.5, "b": 1.5, "c": 1.0})


def test_without_weights_of_projects_each_job_keeps_its_own() -> None:
    jobs = {"a": ("vision", 1.0), "b": ("vision", 3.0), "c": ("speech", 7.0)}
    assert weights_of(jobs, {"vision": None, "speech": None}) == {"a": 1.0, "b": 3.0, "c": 7.0}


positive = st.floats(0.001, 1000.0)


@given(
    st.dictionaries(st.text("abcdefgh", min_size=1), st.tuples(st.sampled_from("xyz"), positive), min_size=1),
    st.fixed_dictionaries({name: positive for name in "xyz"}),
)
def test_weights_add_up_to_those_of_the_projects(
    jobs: dict[str, tuple[str, float]], of_project: dict[str, float]
) -> None:
    """However many jobs each has: no project gains by splitting its work."""
    found = weights_of(jobs, of_project)
    for project in {project for project, _ in jobs.values()}:
        whole = sum(found[name] for name, (its, _) in jobs.items() if its == project)
        assert whole == pytest.approx(of_project[project])


def test_a_job_that_waited_for_more_than_a_day_counts_as_of_the_highest_priority() -> None:
    assert STARVED_S == 24 * 3600
    assert priority_of(-2, 5, idle_s=STARVED_S) == -2
    assert priority_of(-2, 5, idle_s=STARVED_S + 1) == 5
    assert priority_of(5, 5, idle_s=0.0) == 5
