"""Laws of the policies for collections of jobs, on random jobs and supplies."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.policy.groups import Budgets, Collection, Supply, Together, collection, solve
from orchestrator.policy.groups.entitlement import alone, in_proportion
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness, units
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.in_order import first_in_first_out, shortest_first
from orchestrator.policy.groups.policies.throughput import progress, throughput_per_dollar, total_throughput
from orchestrator.policy.groups.policies.water_filling import water_filling

POLICIES = [
    max_min_fairness,
    makespan,
    finish_time_fairness,
    total_throughput,
    throughput_per_dollar,
    progress,
    first_in_first_out,
    shortest_first,
]
SEEDS = st.integers(0, 100_000)


def any_jobs(seed: int, *, sharing: bool = False) -> Collection:
    chance = np.random.default_rng(seed)
    jobs, ways = int(chance.integers(2, 9)), int(chance.integers(1, 4))
    kinds = chance.uniform(1, 20, (3, ways))
    kind = chance.integers(0, 3, jobs)
    rate = kinds[kind] * np.where(chance.random((jobs, 1)) < 0.5, 1.0, chance.uniform(0.8, 1.2, (jobs, 1)))
    age = chance.uniform(0, 100, jobs)
    pairs = None
    if sharing:
        first, second = (each.ravel() for each in np.meshgrid(np.arange(3), np.arange(3)))
        keep = first <= second
        first, second = np.repeat(first[keep], ways), np.repeat(second[keep], ways)
        way = np.tile(np.arange(ways), int(keep.sum()))
        part = chance.uniform(0.4, 0.9, len(way))
        pairs = Together(first, second, way, kinds[first, way] * part, kinds[second, way] * part)
    return collection(
        rate,
        Supply(chance.uniform(0.5, 4, ways), chance.uniform(0.2, 4, ways)),
        gpus=chance.choice([1.0, 1.0, 2.0], jobs),
        steps=chance.uniform(10, 1000, jobs),
        weight=chance.choice([1.0, 2.0, 5.0], jobs),
        age_s=age,
        alone_s=age * chance.uniform(0.5, 1.5, jobs),
        kind=kind,
        together=pairs,
    )


def of(jobs: Collection, order: np.ndarray) -> Collection:
    names = ("rate", "gpus", "steps", "weight", "age_s", "alone_s", "deadline_s", "kind")
    return replace(jobs, **{name: getattr(jobs, name)[order] for name in names})


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(seed=SEEDS, sharing=st.booleans())
def test_the_bound_is_never_on_the_wrong_side_and_the_answer_is_optimal(policy, seed: int, sharing: bool) -> None:
    (certificate,) = solve(policy(any_jobs(seed, sharing=sharing))).certificates  # `solve` refuses a wrong side
    assert certificate.gap < 1e-6


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(seed=SEEDS)
def test_the_order_of_the_jobs_does_not_matter(policy, seed: int) -> None:
    jobs = any_jobs(seed)
    order = np.random.default_rng(seed).permutation(len(jobs))
    values = [solve(policy(each)).certificates[0].value for each in (jobs, of(jobs, order))]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@settings(max_examples=20)
@given(seed=SEEDS)
def test_nobody_is_starved_and_everybody_gets_what_the_least_gets(seed: int) -> None:
    jobs = any_jobs(seed)
    found = water_filling(jobs)
    assert (found.rates > 0).all()
    least = solve(max_min_fairness(jobs)).certificates[0].value
    assert (found.rates / units(jobs)).min() == pytest.approx(least, rel=1e-6)


@settings(max_examples=20)
@given(seed=SEEDS)
def test_nobody_prefers_an_equal_part_of_everything(seed: int) -> None:
    """Sharing incentive: with equal weights, what the worst job gets of its entitlement is no less than with 1/n."""
    mine = any_jobs(seed)
    mine = replace(mine, weight=np.ones(len(mine)))
    least = solve(max_min_fairness(mine)).certificates[0].value
    assert least >= (alone(mine) / units(mine)).min() * (1 - 1e-7)
    ratio = solve(finish_time_fairness(replace(mine, age_s=np.zeros(len(mine)), alone_s=np.zeros(len(mine)))))
    assert ratio.certificates[0].value <= 1 + 1e-7


@settings(max_examples=20)
@given(seed=SEEDS)
def test_nobody_can_get_more_without_another_getting_less(seed: int) -> None:
    """Pareto efficiency of water filling: with everybody's rate as a floor, total progress cannot grow."""
    jobs = any_jobs(seed)
    found = water_filling(jobs)
    program = progress(jobs)
    more = solve(replace(program, at_least=found.rates * (1 - 1e-9)))
    reached = float((jobs.weight * found.rates / jobs.rate.max(axis=1)).sum())
    assert more.certificates[0].value <= reached * (1 + 1e-5)


@settings(max_examples=20)
@given(seed=SEEDS, factor=st.sampled_from([0.01, 3.0, 1000.0]))
def test_costs_grow_with_prices_and_the_plan_does_not_change(seed: int, factor: float) -> None:
    jobs = any_jobs(seed)
    reachable = solve(makespan(jobs)).certificates[0].value
    jobs = replace(jobs, deadline_s=np.full(len(jobs), 1.5 * reachable))
    expensive = replace(jobs, supply=replace(jobs.supply, usd_per_h=jobs.supply.usd_per_h * factor))
    before, after = (solve(least_cost(each)).certificates[0].value for each in (jobs, expensive))
    assert after == pytest.approx(before * factor, rel=1e-6)


@settings(max_examples=20)
@given(seed=SEEDS)
def test_more_budget_is_never_less_progress(seed: int) -> None:
    jobs = any_jobs(seed)
    done = []
    for usd_per_h in (0.5, 1.0, 2.0, 8.0):
        budgets = Budgets(("all",), np.array([usd_per_h]), np.zeros(len(jobs), dtype=np.int64))
        done.append(solve(progress(replace(jobs, budgets=budgets))).certificates[0].value)
    assert all(less <= more * (1 + 1e-7) for less, more in itertools.pairwise(done))


@settings(max_examples=20)
@given(seed=SEEDS)
def test_sharing_machines_never_makes_the_worst_off_worse_off(seed: int) -> None:
    jobs = any_jobs(seed, sharing=True)
    shared, not_shared = (
        solve(max_min_fairness(each)).certificates[0].value for each in (jobs, replace(jobs, together=None))
    )
    assert shared >= not_shared * (1 - 1e-7)


@settings(max_examples=20)
@given(seed=SEEDS)
def test_knowing_how_models_differ_is_never_worse_for_the_worst_off(seed: int) -> None:
    jobs = any_jobs(seed)
    blind = solve(max_min_fairness(jobs.agnostic()))
    got = (jobs.rate * blind.shares).sum(axis=1) / units(jobs)
    assert solve(max_min_fairness(jobs)).certificates[0].value >= got.min() * (1 - 1e-7)
    assert (in_proportion(jobs) > 0).all()
