"""Classes of equal jobs give the answers that the jobs one by one would, also if their work and deadlines differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.policy.groups import Collection, Supply, collection, solve
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.water_filling import Entities, hierarchical, water_filling


def equal_jobs(seed: int) -> Collection:
    chance = np.random.default_rng(seed)
    kinds = chance.uniform(1, 9, (2, 3))
    jobs = 9
    supply = Supply(chance.uniform(1, 4, 3), chance.uniform(0.5, 3, 3))
    steps, age = chance.uniform(10, 500, jobs), chance.uniform(0, 50, jobs)
    return collection(kinds[chance.integers(0, 2, jobs)], supply, steps=steps, age_s=age, alone_s=age)


def one_by_one(jobs: Collection) -> Collection:
    """Jobs that differ a little, so that each is a class of its own."""
    beside = 1 + 1e-9 * np.arange(len(jobs))[:, None]
    return replace(jobs, rate=jobs.rate * beside)


@pytest.mark.parametrize("policy", [makespan, finish_time_fairness])
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_ratios_are_the_same(policy, seed: int) -> None:
    jobs = equal_jobs(seed)
    together, apart = (solve(policy(each)).certificates[0] for each in (jobs, one_by_one(jobs)))
    assert together.value == pytest.approx(apart.value, rel=1e-6)
    assert together.gap < 1e-7


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_costs_with_deadlines_are_the_same(seed: int) -> None:
    jobs = equal_jobs(seed)
    reachable = solve(makespan(jobs)).certificates[0].value
    chance = np.random.default_rng(seed)
    jobs = replace(jobs, deadline_s=reachable * chance.uniform(1.05, 4, len(jobs)))
    together, apart = (solve(least_cost(each)).certificates[0].value for each in (jobs, one_by_one(jobs)))
    assert together == pytest.approx(apart, rel=1e-6)


@pytest.mark.parametrize("floors", [[0.14, 0.5, 0.66, 0.99], [0.0, 0.5, 0.3, 0.9], [0.9, 0.0, 0.6, 0.9]])
def test_ratios_above_floors_that_differ_are_the_same(floors: list[float]) -> None:
    """The first ratio that is tried is so high that no floor counts; at the best one, they do."""
    gpus = np.array([1.0, 2.0, 1.0, 1.0])
    jobs = collection(np.tile([1.0, 0.5], (4, 1)), Supply(np.full(2, 2.0), np.ones(2)), gpus=gpus)
    together, apart = (
        solve(replace(max_min_fairness(each), at_least=np.array(floors))).certificates[0]
        for each in (jobs, one_by_one(jobs))
    )
    assert together.value == pytest.approx(apart.value, rel=1e-6)
    assert together.gap < 1e-7


def test_water_filling_raises_those_who_can_still_get_more() -> None:
    rate = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = water_filling(collection(rate, Supply(np.array([1.0, 1.0]), np.ones(2))))
    assert found.rates == pytest.approx([0.5, 0.5, 1.0])
    assert len(found.certificates) == 2


def test_entities_share_by_weight_and_inside_as_each_says() -> None:
    jobs = collection(np.ones((4, 1)), Supply(np.array([1.0]), np.ones(1)), age_s=np.array([1.0, 2.0, 4.0, 3.0]))
    entities = Entities(np.array([0, 0, 1, 1]), np.array([1.0, 3.0]), ("fairness", "fifo"))
    found = hierarchical(jobs, entities)
    assert found.rates == pytest.approx([0.125, 0.125, 0.75, 0.0])
