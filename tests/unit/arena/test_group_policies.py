"""Back-tests of policies for collections of jobs: each is played on the same trace, and what it reports is right."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.arena.group_policies import ALL, LEAST_COST, GroupPolicyResult, backtest, cluster_of, named, room_for
from orchestrator.arena.job_traces import JobTrace
from orchestrator.arena.rounds import Arrivals
from orchestrator.errors import UsageError

HOUR_S = 3600.0


def trace(
    rate: list[list[float]], hours: list[float], deadline_h: list[float], weight: list[float] | None = None
) -> JobTrace:
    """Jobs that arrive at once, with so many hours of work in their first way."""
    rates, ones = np.array(rate), np.ones(len(rate))
    steps = np.array(hours) * HOUR_S * rates[:, 0]
    jobs = Arrivals(0 * ones, rates, ones, steps, None if weight is None else np.array(weight))
    return JobTrace("made-up", jobs, np.array(deadline_h) * HOUR_S)


def results(of: JobTrace, cluster: str, *policies: str) -> dict[str, GroupPolicyResult]:
    found = backtest(of, cluster_of(cluster), policies, lambda _name: lambda _ended, _jobs: None)
    return {each.policy: each for each in found.policies}


def test_every_policy_ends_every_job_and_pays_what_it_uses() -> None:
    jobs = trace([[4.0, 1.0], [2.0, 1.5], [3.0, 1.0]], [1.0, 2.0, 1.5], [9.0, np.inf, 9.0])
    found = results(jobs, "fast=1@2.0,slow=1@0.5", *ALL)
    assert list(found) == list(ALL)
    for each in found.values():
        assert 0 < each.mean_h <= each.p95_h <= each.makespan_h < 24
        assert each.cost_nano_usd > 0
        assert each.elastic == (each.policy == LEAST_COST)
    assert found[LEAST_COST].late == 0


def test_late_jobs_are_counted() -> None:
    jobs = trace([[1.0], [1.0]], [2.0, 2.0], [2.5, 2.5])
    assert results(jobs, "only=1", "first-in-first-out")["first-in-first-out"].late == 1
    assert results(jobs, "only=2", "first-in-first-out")["first-in-first-out"].late == 0


def test_a_job_of_more_weight_ends_first() -> None:
    jobs = trace([[1.0], [1.0]], [2.0, 2.0], [3.0, np.inf], weight=[9.0, 1.0])
    assert results(jobs, "only=1", "max-min-fairness")["max-min-fairness"].late == 0
    even = trace([[1.0], [1.0]], [2.0, 2.0], [3.0, np.inf])
    assert results(even, "only=1", "max-min-fairness")["max-min-fairness"].late == 1


def test_progress_is_reported() -> None:
    reported = []
    backtest(
        trace([[1.0]] * 2, [1.0, 2.0], [9.0, 9.0]),
        cluster_of("only=1"),
        ("first-in-first-out", LEAST_COST),
        lambda name: lambda ended, jobs: reported.append((name, ended, jobs)),
    )
    assert reported[-1] == (LEAST_COST, 2, 2)
    assert ("first-in-first-out", 1, 2) in reported


def test_names_and_clusters_are_read() -> None:
    assert named("") == ALL
    assert named("makespan, max-min-fairness,makespan") == ("makespan", "max-min-fairness")
    assert cluster_of("v100=8@0.74, k80=24") == {"v100": (8, 0.74), "k80": (24, 0.0)}


@pytest.mark.parametrize(
    ("policies", "hint"), [("makspan", 'did you mean "makespan"?'), ("xyzzy", "finish-time-fairness")]
)
def test_an_unknown_policy_is_refused(policies: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        named(policies)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "v100", "v100=", "v100=x", "v100=0", "v100=-1", "=3", "v100=1@x", "v100=1@-1", "v100=1@inf", "a=1,a=2"]
)
def test_a_cluster_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cluster"):
        cluster_of(text)


def test_a_job_has_room_for_as_many_gpus_as_the_cluster_has_unless_it_only_rents() -> None:
    cluster = cluster_of("fast=4@2.0,slow=2@0.5")
    assert room_for(("first-in-first-out", LEAST_COST), cluster) == [4, 2]
    assert room_for((LEAST_COST,), cluster) is None
