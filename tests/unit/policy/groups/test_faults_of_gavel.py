"""What Gavel's code gets wrong (defects found by reading and running it at c4fa400): each is right here."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.policy.groups import Supply, Together, collection, solve
from orchestrator.policy.groups.policies.cost import late, least_cost, on_time
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import makespan

TWO_KINDS = Supply(np.array([2.0, 1.0]), np.array([1.0, 3.0]))


def sharing(first: list[int], second: list[int], way: list[int], rate: float) -> Together:
    count = len(first)
    return Together(np.array(first), np.array(second), np.array(way), np.full(count, rate), np.full(count, rate))


def test_jobs_of_different_sizes_can_share_machines() -> None:
    """Gavel stops with "Invalid reshape dimensions": it assumes that every job has as many partners."""
    jobs = collection(
        np.array([[1.0, 2.0]] * 6),
        TWO_KINDS,
        gpus=np.array([1.0, 1.0, 1.0, 2.0, 2.0, 4.0]),
        kind=np.array([0, 0, 0, 1, 1, 2]),
        together=sharing([0, 0, 1], [0, 0, 1], [0, 1, 1], 0.9),
    )
    found = solve(max_min_fairness(jobs))
    alone = solve(max_min_fairness(collection(jobs.rate, TWO_KINDS, gpus=jobs.gpus)))
    assert found.certificates[0].value > alone.certificates[0].value
    assert found.together.sum() > 0


def test_two_jobs_on_one_machine_pay_for_it_once() -> None:
    """Gavel bills the whole machine to each."""
    jobs = collection(
        np.array([[1.0], [1.0]]),
        Supply(np.array([1.0]), np.array([2.0])),
        steps=np.array([3600.0, 3600.0]),
        deadline_s=np.full(2, 4500.0),
        kind=np.array([0, 0]),
        together=sharing([0], [0], [0], 0.8),
    )
    found = solve(least_cost(jobs))
    assert found.rates == pytest.approx([0.8, 0.8])
    assert found.certificates[0].value == pytest.approx(2.0)  # USD per hour: one machine, all of the time


def test_one_impossible_deadline_does_not_cost_the_others_theirs() -> None:
    """Gavel drops all deadlines when they cannot all be met."""
    jobs = collection(
        np.array([[1.0], [1.0], [1.0]]),
        Supply(np.array([2.0]), np.array([1.0])),
        steps=np.array([100.0, 100.0, 300.0]),
        deadline_s=np.array([100.0, 125.0, 1000.0]),
    )
    missed = late(jobs, on_time(jobs))
    assert missed.jobs.tolist() == [0]  # relative to its need, it misses least
    assert missed.missing == pytest.approx([0.1])  # 2.1 of 2 GPUs are needed, and each does 1 step/s


def test_a_deadline_that_has_passed_is_no_deadline_that_is_met() -> None:
    """Gavel turns a negative time left into a need of less than nothing, which every job meets."""
    need = on_time(collection(np.array([[1.0]]), TWO_KINDS_OF_ONE, deadline_s=np.array([-5.0])))
    assert need.tolist() == [np.inf]


TWO_KINDS_OF_ONE = Supply(np.array([1.0]), np.array([1.0]))


def test_the_makespan_is_not_a_few_percent_too_long() -> None:
    """Gavel's bisection ends 5% from the optimum."""
    jobs = collection(
        np.array([[1.0, 3.0], [1.0, 2.0], [2.0, 2.0]]),
        Supply(np.array([1.0, 1.0]), np.array([1.0, 1.0])),
        steps=np.array([30.0, 20.0, 40.0]),
    )
    (certificate,) = solve(makespan(jobs)).certificates
    # the third needs 20 s in any case, on one GPU; the others need 10 s each on the fast one
    assert certificate.value == pytest.approx(20.0, rel=1e-9)
    assert certificate.bound == pytest.approx(20.0, rel=1e-9)
